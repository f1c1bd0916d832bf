"""Random weights in ggml's storage formats, at the speed of random bytes.

Nothing is quantised: each format's blocks are filled with random bits, and then the fields that carry the scale are
overwritten so that the values have mean zero and about the standard deviation asked for.  The same (type, count, scale,
generator state) gives the same bytes on every machine, since only random.Random.randbytes is used.
"""
import math
import struct

# name: (number in the file, elements per block, bytes per block)
TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "MXFP4": (39, 32, 17),
}

# Sub-scales of Q4_K and Q5_K: eight scales of 32 and eight minima of 30, packed in six bits each.
K_SCALES = bytes([32] * 4 + [30] * 4 + [0] * 4)


def bytes_of(kind, count):
    """Bytes that `count` elements of a type take; the count must fill whole blocks."""
    _, elements, size = TYPES[kind]
    if count % elements:
        raise ValueError(f"{count} elements do not fill blocks of {elements} ({kind})")
    return count // elements * size


def _half(value):
    return struct.pack("<e", value)


def _fill(blocks, size, at, field):
    """Writes the bytes `field` at offset `at` of every block."""
    count = len(blocks) // size
    for i, byte in enumerate(field):
        blocks[at + i::size] = bytes([byte]) * count


def _floats(blocks, size, exponent_bits, mantissa_bits, scale):
    """Random bits as floats: sign and mantissa stay random, the exponent is one of four below the scale's own."""
    bias = (1 << (exponent_bits - 1)) - 1
    top = bias + round(math.log2(scale))
    if size == 2:
        high = bytes((b & 0x83) | ((top - ((b >> 2) & 3)) << mantissa_bits - 8) for b in range(256))
        blocks[1::2] = blocks[1::2].translate(high)
        return
    # A float's exponent straddles two bytes: its last bit lies on top of byte 2 and stays random.
    high = bytes((b & 0x80) | ((top - 2 * (b & 1)) >> 1) for b in range(256))
    blocks[3::4] = blocks[3::4].translate(high)


def weights(kind, count, scale, rng):
    """`count` random elements of a type, with a standard deviation near `scale`, as a bytearray."""
    size = TYPES[kind][2]
    blocks = bytearray(rng.randbytes(bytes_of(kind, count)))
    if kind == "F32":
        _floats(blocks, 4, 8, 23, scale)
    elif kind == "F16":
        _floats(blocks, 2, 5, 10, scale)
    elif kind == "Q4_0":  # d * (q - 8)
        _fill(blocks, size, 0, _half(scale / 4.6))
    elif kind == "Q8_0":  # d * q
        _fill(blocks, size, 0, _half(scale / 74.0))
    elif kind == "Q4_K":  # d * 32 * q - dmin * 30, q in 0..15
        d = scale / (32 * 4.6)
        _fill(blocks, size, 0, _half(d) + _half(d * 7.5 * 32 / 30) + K_SCALES)
    elif kind == "Q5_K":  # the same with q in 0..31
        d = scale / (32 * 9.2)
        _fill(blocks, size, 0, _half(d) + _half(d * 15.5 * 32 / 30) + K_SCALES)
    elif kind == "Q6_K":  # d * s * (q - 32), sixteen scales s in 20..51
        scales = bytes(20 + (b & 31) for b in range(256))
        for i in range(192, 208):
            blocks[i::size] = blocks[i::size].translate(scales)
        _fill(blocks, size, 208, _half(scale / (36 * 18.5)))
    elif kind == "MXFP4":  # 2^(e - 127) * one of {0, .5, 1, 1.5, 2, 3, 4, 6} with a sign
        _fill(blocks, size, 0, bytes([127 + round(math.log2(scale / 2.93))]))
    else:
        raise ValueError(f"no generator for {kind}")
    return blocks


def ones(count):
    """`count` floats of 1.0: the weights of norms."""
    return bytearray(struct.pack("<f", 1.0) * count)

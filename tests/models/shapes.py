"""What a synthetic model consists of: hyperparameters and tensors of five architectures, and the shapes that have names.

A shape's `types` name a storage format per role; a list is taken in turn by the layers.  Roles: embd, output (None ties it to
the embedding), attn, ffn (dense feed-forward), gate, up, down (routed experts), shared.
"""
from dataclasses import dataclass, field

import gguf_file as g
import quants

DEFAULT_TYPES = {"embd": "Q4_K", "output": "Q6_K", "attn": "Q4_K", "ffn": "Q4_K", "gate": "Q4_K", "up": "Q4_K", "down": "Q4_K",
                 "shared": "Q4_K"}


@dataclass
class Shape:
    arch: str
    layers: int
    embd: int
    ff: int  # of an expert, or of the dense feed-forward where there are no experts
    heads: int
    kv: int
    head: int  # dimension of a head
    experts: int = 0
    used: int = 0
    context: int = 32768
    vocab: int = 512  # of the made-up vocabulary; a copied tokenizer brings its own
    types: dict = field(default_factory=dict)

    def kind(self, role, layer=0):
        kind = {**DEFAULT_TYPES, **self.types}[role]
        return kind[layer % len(kind)] if isinstance(kind, list) else kind


def _moe(layers, experts, used, embd, ff, heads, kv, head, **more):
    return Shape("qwen3moe", layers, embd, ff, heads, kv, head, experts, used, **more)


# Real models' shapes, for measurements.  Their weights are random: routing is close to uniform, the worst case for a cache.
NAMED = {
    "qwen3-30b-a3b": _moe(48, 128, 8, 2048, 768, 32, 4, 128, vocab=151936),
    "qwen3-15b-a3b": _moe(24, 128, 8, 2048, 768, 32, 4, 128, vocab=151936),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 2880, 64, 8, 64, 32, 4, vocab=201088, types=dict(
        attn="Q8_0", embd="Q8_0", output="Q8_0", gate="MXFP4", up="MXFP4", down="MXFP4")),
    "moe-1b": _moe(12, 64, 8, 1024, 512, 16, 4, 64, vocab=32000),
    "dense-7b": Shape("llama", 32, 4096, 11008, 32, 8, 128, vocab=32000),
    "dense-1b": Shape("llama", 16, 2048, 5632, 32, 8, 64, vocab=32000),
}


def _u32(arch, **values):
    """Entries ARCH.KEY of 32-bit numbers; a double underscore stands for a dot."""
    return [g.entry(f"{arch}.{key.replace('__', '.')}", g.U32, value) for key, value in values.items()]


def _latent_parameters(s):
    """Attention of deepseek2: the ranks are twice a head, the rotated part is half a head."""
    a, rank, rotated = s.arch, s.head * 2, s.head // 2
    return _u32(a, rope__dimension_count=rotated, attention__head_count_kv=1, attention__q_lora_rank=rank,
                attention__kv_lora_rank=rank, attention__key_length=rank + rotated, attention__value_length=rank,
                attention__key_length_mla=s.head + rotated, attention__value_length_mla=s.head,
                leading_dense_block_count=1, expert_shared_count=1, expert_gating_func=2) + [
        g.entry(f"{a}.expert_weights_scale", g.F32, 1.0), g.entry(f"{a}.expert_weights_norm", g.BOOL, True)]


def hyperparameters(s, vocab):
    """The architecture's metadata entries."""
    a = s.arch
    out = [g.entry("general.architecture", g.STRING, a), g.entry("general.name", g.STRING, "synthetic " + a)]
    out += _u32(a, vocab_size=vocab, block_count=s.layers, context_length=s.context, embedding_length=s.embd,
                feed_forward_length=s.ff, attention__head_count=s.heads)
    out += [g.entry(f"{a}.attention.layer_norm_rms_epsilon", g.F32, 1e-6), g.entry(f"{a}.rope.freq_base", g.F32, 1e6)]
    if s.experts:
        out += _u32(a, expert_count=s.experts, expert_used_count=s.used, expert_feed_forward_length=s.ff)
    if a == "deepseek2":
        return out + _latent_parameters(s)
    out += _u32(a, rope__dimension_count=s.head, attention__head_count_kv=s.kv, attention__key_length=s.head,
                attention__value_length=s.head)
    if a == "gpt-oss":
        out += _u32(a, attention__sliding_window=128)
    if a == "qwen2moe":
        out += _u32(a, expert_shared_feed_forward_length=s.ff)
    return out


class _Tensors:
    """Collects tensors; dims are given as in the file, the contiguous dimension first."""

    def __init__(self):
        self.all = []

    def add(self, name, kind, *dims, scale=None):
        count = 1
        for d in dims:
            count *= d
        number = quants.TYPES[kind][0]
        self.all.append(g.Tensor(name, dims, kind, number, quants.bytes_of(kind, count), scale or dims[0] ** -0.5))

    def norm(self, name, *dims):
        self.add(name, "F32", *dims, scale=1.0)
        self.all[-1].kind = "ones"

    def bias(self, name, *dims):
        self.add(name, "F32", *dims, scale=0.125)


def _attention(t, b, s, kind):
    width = s.heads * s.head
    t.add(b + "attn_q.weight", kind, s.embd, width)
    t.add(b + "attn_k.weight", kind, s.embd, s.kv * s.head)
    t.add(b + "attn_v.weight", kind, s.embd, s.kv * s.head)
    t.add(b + "attn_output.weight", kind, width, s.embd)
    if s.arch == "qwen3moe":
        t.norm(b + "attn_q_norm.weight", s.head)
        t.norm(b + "attn_k_norm.weight", s.head)
    if s.arch in ("qwen2moe", "gpt-oss"):
        t.bias(b + "attn_q.bias", width)
        t.bias(b + "attn_k.bias", s.kv * s.head)
        t.bias(b + "attn_v.bias", s.kv * s.head)
    if s.arch == "gpt-oss":
        t.bias(b + "attn_output.bias", s.embd)
        t.bias(b + "attn_sinks.weight", s.heads)


def _latent_attention(t, b, s, kind):
    rank, rotated = s.head * 2, s.head // 2
    t.norm(b + "attn_q_a_norm.weight", rank)
    t.norm(b + "attn_kv_a_norm.weight", rank)
    t.add(b + "attn_q_a.weight", kind, s.embd, rank)
    t.add(b + "attn_q_b.weight", kind, rank, s.heads * (s.head + rotated))
    t.add(b + "attn_kv_a_mqa.weight", kind, s.embd, rank + rotated)
    t.add(b + "attn_k_b.weight", kind, s.head, rank, s.heads)
    t.add(b + "attn_v_b.weight", kind, rank, s.head, s.heads)
    t.add(b + "attn_output.weight", kind, s.heads * s.head, s.embd)


def _routed(t, b, s, layer):
    t.add(b + "ffn_gate_inp.weight", "F32", s.embd, s.experts, scale=2 * s.embd ** -0.5)
    if s.arch == "deepseek2":  # gate and up as one tensor, as converters write it since gate_up was merged
        t.add(b + "ffn_gate_up_exps.weight", s.kind("gate", layer), s.embd, 2 * s.ff, s.experts)
    else:
        t.add(b + "ffn_gate_exps.weight", s.kind("gate", layer), s.embd, s.ff, s.experts)
        t.add(b + "ffn_up_exps.weight", s.kind("up", layer), s.embd, s.ff, s.experts)
    t.add(b + "ffn_down_exps.weight", s.kind("down", layer), s.ff, s.embd, s.experts)
    if s.arch == "gpt-oss":
        t.bias(b + "ffn_gate_inp.bias", s.experts)
        t.bias(b + "ffn_gate_exps.bias", s.ff, s.experts)
        t.bias(b + "ffn_up_exps.bias", s.ff, s.experts)
        t.bias(b + "ffn_down_exps.bias", s.embd, s.experts)
    if s.arch in ("qwen2moe", "deepseek2"):
        kind = s.kind("shared", layer)
        t.add(b + "ffn_gate_shexp.weight", kind, s.embd, s.ff)
        t.add(b + "ffn_up_shexp.weight", kind, s.embd, s.ff)
        t.add(b + "ffn_down_shexp.weight", kind, s.ff, s.embd)
    if s.arch == "qwen2moe":
        t.add(b + "ffn_gate_inp_shexp.weight", "F32", s.embd)


def _dense(t, b, s, layer):
    kind = s.kind("ffn", layer)
    t.add(b + "ffn_gate.weight", kind, s.embd, s.ff)
    t.add(b + "ffn_up.weight", kind, s.embd, s.ff)
    t.add(b + "ffn_down.weight", kind, s.ff, s.embd)


def tensors(s, vocab):
    """All tensors of a shape, in file order."""
    t = _Tensors()
    t.add("token_embd.weight", s.kind("embd"), s.embd, vocab, scale=1.0)
    t.norm("output_norm.weight", s.embd)
    if s.kind("output"):
        t.add("output.weight", s.kind("output"), s.embd, vocab)
    for layer in range(s.layers):
        b = f"blk.{layer}."
        t.norm(b + "attn_norm.weight", s.embd)
        (_latent_attention if s.arch == "deepseek2" else _attention)(t, b, s, s.kind("attn", layer))
        t.norm(b + ("post_attention_norm.weight" if s.arch == "gpt-oss" else "ffn_norm.weight"), s.embd)
        if s.experts and not (s.arch == "deepseek2" and layer == 0):
            _routed(t, b, s, layer)
        else:
            _dense(t, b, s, layer)
    return t.all

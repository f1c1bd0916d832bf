/*
 * text.c - UTF-8 and escapes; see text.h.
 */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* The least character that a sequence of this length may stand for: a smaller one is an overlong form. */
static const uint32_t least_point[5] = {0, 0, 0x80, 0x800, 0x10000};

static size_t sequence_length(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xC2 && first <= 0xDF)
		return 2;
	if (first >= 0xE0 && first <= 0xEF)
		return 3;
	if (first >= 0xF0 && first <= 0xF4)
		return 4;
	return 0;
}

size_t weir_utf8_decode(const char *text, size_t bytes, uint32_t *point)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t length = bytes ? sequence_length(at[0]) : 0;
	uint32_t value;

	if (!length || length > bytes)
		return 0;
	value = length == 1 ? at[0] : at[0] & (0x7Fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((at[i] & 0xC0) != 0x80)
			return 0;
		value = value << 6 | (at[i] & 0x3Fu);
	}
	if (value < least_point[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
		return 0;
	*point = value;
	return length;
}

bool weir_utf8_valid(const char *text, size_t bytes)
{
	uint32_t point;
	size_t length;

	for (size_t at = 0; at < bytes; at += length) {
		length = weir_utf8_decode(text + at, bytes - at, &point);
		if (!length)
			return false;
	}
	return true;
}

static bool is_control(uint32_t point)
{
	return point < 0x20 || (point >= 0x7F && point <= 0x9F);
}

/* Writes the escape of one control character or stray byte into unit[8], and returns its length. */
static size_t escape_unit(uint32_t value, bool stray, char unit[8])
{
	static const char named[] = "\n\t\r";
	const char *name = value && !stray && value < 0x20 ? strchr(named, (int)value) : NULL;
	int length;

	if (name)
		length = snprintf(unit, 8, "\\%c", "ntr"[name - named]);
	else if (value >= 0x80 && !stray)
		length = snprintf(unit, 8, "\\u%04x", (unsigned)value & 0xFFFF);
	else
		length = snprintf(unit, 8, "\\x%02x", (unsigned)value & 0xFF);
	return (size_t)length;
}

/* Takes one character (or stray byte) from text and gives what to show for it.  Returns how many bytes were taken. */
static size_t next_unit(const char *text, size_t bytes, char unit[8], size_t *unit_bytes)
{
	uint32_t point = 0;
	size_t length = weir_utf8_decode(text, bytes, &point);

	if (!length) {
		*unit_bytes = escape_unit((unsigned char)text[0], true, unit);
		return 1;
	}
	if (is_control(point)) {
		*unit_bytes = escape_unit(point, false, unit);
		return length;
	}
	memcpy(unit, text, length);
	*unit_bytes = length;
	return length;
}

bool weir_text_clean(const char *text, size_t bytes)
{
	uint32_t point;
	size_t length;

	for (size_t at = 0; at < bytes; at += length) {
		length = weir_utf8_decode(text + at, bytes - at, &point);
		if (!length || is_control(point))
			return false;
	}
	return true;
}

size_t weir_text_escape(const char *text, size_t bytes, char *out, size_t capacity)
{
	size_t total = 0;
	size_t written = 0;
	char unit[8];
	size_t unit_bytes;

	for (size_t at = 0; at < bytes;) {
		at += next_unit(text + at, bytes - at, unit, &unit_bytes);
		if (written == total && total + unit_bytes < capacity) {
			memcpy(out + written, unit, unit_bytes);
			written += unit_bytes;
		}
		total += unit_bytes;
	}
	if (capacity)
		out[written] = '\0';
	return total;
}

/*
 * size.c - reads a SIZE.  Decimals are exact: "1.1K" is 1126 bytes (1126.4 rounded down), never a float's idea of it.
 */
#include "base/size.h"

#include <string.h>
#include <strings.h>

#include "base/fail.h"

/* Digits of a fraction that count; with them a product stays below 2^128.  Further digits are read and change nothing. */
#define FRACTION_DIGITS_MAX 18
#define SHARE_WHOLE_PPM 1000000u

__extension__ typedef unsigned __int128 wide;

struct suffix {
	const char *text;
	uint64_t bytes;
};

static const struct suffix suffixes[] = {
	{"", 1},
	{"B", 1},
	{"K", UINT64_C(1) << 10},
	{"KiB", UINT64_C(1) << 10},
	{"KB", UINT64_C(1000)},
	{"M", UINT64_C(1) << 20},
	{"MiB", UINT64_C(1) << 20},
	{"MB", UINT64_C(1000000)},
	{"G", UINT64_C(1) << 30},
	{"GiB", UINT64_C(1) << 30},
	{"GB", UINT64_C(1000000000)},
	{"T", UINT64_C(1) << 40},
	{"TiB", UINT64_C(1) << 40},
	{"TB", UINT64_C(1000000000000)},
};

/* A decimal number: whole + fraction / scale. */
struct decimal {
	uint64_t whole, fraction, scale;
};

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static const char *read_whole(const char *text, uint64_t *whole)
{
	*whole = 0;
	if (!is_digit(*text))
		return NULL;
	for (; is_digit(*text); text++) {
		if (__builtin_mul_overflow(*whole, UINT64_C(10), whole) ||
		    __builtin_add_overflow(*whole, (uint64_t)(*text - '0'), whole))
			return NULL;
	}
	return text;
}

static const char *read_fraction(const char *text, struct decimal *number)
{
	int digits = 0;

	if (!is_digit(*text))
		return NULL;
	for (; is_digit(*text); text++) {
		if (digits++ >= FRACTION_DIGITS_MAX)
			continue;
		number->fraction = number->fraction * 10 + (uint64_t)(*text - '0');
		number->scale *= 10;
	}
	return text;
}

/* The first byte after the number, or NULL when there is no number. */
static const char *read_decimal(const char *text, struct decimal *number)
{
	number->fraction = 0;
	number->scale = 1;
	text = read_whole(text, &number->whole);
	if (text && *text == '.')
		text = read_fraction(text + 1, number);
	return text;
}

static uint64_t suffix_bytes(const char *text)
{
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
		if (!strcasecmp(text, suffixes[i].text))
			return suffixes[i].bytes;
	return 0;
}

/* number × unit, rounded down; 0 when it does not fit. */
static uint64_t scaled(const struct decimal *number, uint64_t unit)
{
	wide product = (wide)number->whole * unit + (wide)number->fraction * unit / number->scale;

	return product > UINT64_MAX ? 0 : (uint64_t)product;
}

int weir_size_parse(const char *text, weir_size *size, weir_error *error)
{
	struct decimal number;
	const char *rest;
	uint64_t unit, amount;

	if (!strcmp(text, "auto")) {
		*size = (weir_size){.kind = WEIR_SIZE_AUTO};
		return 0;
	}
	rest = read_decimal(text, &number);
	if (!rest)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "'%.40s' is not a size", text);
	if (!strcmp(rest, "%")) {
		amount = scaled(&number, SHARE_WHOLE_PPM / 100);
		if (!amount || amount > SHARE_WHOLE_PPM)
			return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
					 "'%.40s': a share is above 0%% and at most 100%%", text);
		*size = (weir_size){.kind = WEIR_SIZE_SHARE, .share_ppm = (uint32_t)amount};
		return 0;
	}
	unit = suffix_bytes(rest);
	if (!unit)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "'%.40s' is not a size", text);
	amount = scaled(&number, unit);
	if (!amount)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "'%.40s': a size is at least one byte and below 2^64", text);
	*size = (weir_size){.kind = WEIR_SIZE_BYTES, .bytes = amount};
	return 0;
}

/*
 * text.h - bytes from files made safe to show.
 *
 * A name or text from a file can hold anything.  Shown raw it could move the cursor, retitle the window or forge a line, so
 * what is printed goes through here: C0 controls and DEL become \n, \t, \r or \xNN, C1 controls \u00NN, and each byte that is
 * no part of valid UTF-8 \xNN.  All else, in any script, stays as it is; a backslash too, since the result is for eyes and not
 * for parsing.
 *
 * Pure functions, any thread; no allocation.
 */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the UTF-8 sequence at text[0..bytes), 1 to 4, or 0 when it is not valid (overlong forms, surrogates and numbers
 * beyond U+10FFFF are not).  *point receives the character. */
size_t weir_utf8_decode(const char *text, size_t bytes, uint32_t *point);

bool weir_utf8_valid(const char *text, size_t bytes);

/* True when `text` holds nothing that weir_text_escape would change. */
bool weir_text_clean(const char *text, size_t bytes);

/*
 * Writes text[0..bytes) escaped, always ends with NUL when capacity > 0, and cuts between characters and never inside an
 * escape.  Returns the length that the whole result has, so that a result of `capacity` or more says that it was cut (as
 * snprintf does).
 */
size_t weir_text_escape(const char *text, size_t bytes, char *out, size_t capacity);

#endif

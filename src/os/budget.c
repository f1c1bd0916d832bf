/*
 * budget.c - see weir/budget.h.  Owns nothing; any thread.
 */
#include "weir/budget.h"

#include <stddef.h>

#include "base/fail.h"
#include "base/size.h"
#include "os/limits.h"

int weir_budget_resolve(const char *text, uint64_t *bytes, weir_error *error)
{
	weir_limits limits;
	weir_size size;
	int code;

	if (!text || !bytes)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no text, or no place for the bytes");
	code = weir_size_parse(text, &size, error);
	if (code < 0)
		return code;
	weir_limits_read(&limits);
	*bytes = weir_limits_resolve(&limits, &size);
	return 0;
}

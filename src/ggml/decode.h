/* decode.h - mul_mat_id for one token, with experts that are still arriving (internal to src/ggml). */
#ifndef WEIR_GGML_DECODE_H
#define WEIR_GGML_DECODE_H

#include "ggml/experts.h"

/* Puts the one step that replaces the operation into the list. */
int weir_decode_append(weir_steps *steps, weir_expert_op *op);
void weir_decode_free(weir_expert_op *op);

#endif

/*
 * faulty.c - see fault.h for what it does, io_types.h for who may call it.
 *
 *   start ──(fails at once)──────────────► held ──(due, order)──► collect
 *     └──► inner method ──► inner results ──┘
 *
 * Nothing is held for ever: what is held only for its order is given when the inner method has nothing in flight, and what is
 * held for its time bounds the sleep in wait.
 */
#include "io/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "os/memory.h"

#define SHORT_UNIT_BYTES 4096u
#define GARBAGE 0xa5

typedef enum fault_kind {
	FAULT_EIO,
	FAULT_EIO_EVERY,
	FAULT_ENOMEM,
	FAULT_EINTR,
	FAULT_EAGAIN,
	FAULT_EINVAL,
	FAULT_SHORT,
	FAULT_SHORT_ODD,
	FAULT_LATENCY,
	FAULT_REORDER,
	FAULT_SEED,
	FAULTS_COUNT,
} fault_kind;

static const struct fault_rule {
	const char *name;
	int sys_errno; /* of a read that fails, or 0 */
	bool every; /* every Nth, not only the Nth */
	bool number; /* wants ":N", N > 0 */
} RULES[FAULTS_COUNT] = {
	[FAULT_EIO] = {"eio", EIO, false, true},	  [FAULT_EIO_EVERY] = {"eio-every", EIO, true, true},
	[FAULT_ENOMEM] = {"enomem", ENOMEM, false, true}, [FAULT_EINTR] = {"eintr", EINTR, true, true},
	[FAULT_EAGAIN] = {"eagain", EAGAIN, true, true},  [FAULT_EINVAL] = {"einval", EINVAL, false, true},
	[FAULT_SHORT] = {"short", 0, true, true},	  [FAULT_SHORT_ODD] = {"short-odd", 0, true, true},
	[FAULT_LATENCY] = {"latency-us", 0, false, true}, [FAULT_REORDER] = {"reorder", 0, false, false},
	[FAULT_SEED] = {"seed", 0, false, true},
};

typedef struct started {
	weir_io_piece piece;
	uint32_t cut_to; /* bytes to admit to, or UINT32_MAX */
	uint64_t due_ns;
} started;

typedef struct held_result {
	weir_io_result result;
	uint64_t due_ns;
} held_result;

typedef struct faulty {
	const weir_method *inner;
	void *inner_state;
	uint64_t value[FAULTS_COUNT]; /* 0: not asked for */
	uint64_t random;
	uint64_t reads_count;
	uint32_t queue_depth;
	uint32_t inner_in_flight;
	started *started; /* by piece */
	weir_io_result *incoming; /* room for queue_depth and a wake */
	held_result *held; /* room for queue_depth */
	uint32_t held_count;
	_Atomic uint64_t due_ns; /* when collect gives something without the inner method's help; UINT64_MAX: never */
} faulty;

static uint64_t next_random(faulty *state)
{
	state->random ^= state->random << 13;
	state->random ^= state->random >> 7;
	state->random ^= state->random << 17;
	return state->random;
}

static bool parse_number(const char *text, size_t length, uint64_t *number)
{
	uint64_t value = 0;
	size_t i;

	if (!length || length > 18)
		return false;
	for (i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*number = value;
	return value > 0;
}

/* One fault: `length` bytes at `text`. */
static bool parse_fault(faulty *state, const char *text, size_t length)
{
	const char *colon = memchr(text, ':', length);
	size_t name_length = colon ? (size_t)(colon - text) : length;
	uint64_t number = 1;
	int kind;

	if (colon && !parse_number(colon + 1, length - name_length - 1, &number))
		return false;
	for (kind = 0; kind < FAULTS_COUNT; kind++) {
		if (strlen(RULES[kind].name) != name_length || memcmp(RULES[kind].name, text, name_length) != 0)
			continue;
		state->value[kind] = number;
		return RULES[kind].number == (colon != NULL);
	}
	return false;
}

static bool parse_description(faulty *state, const char *description)
{
	const char *comma;

	while ((comma = strchr(description, ',')) != NULL) {
		if (!parse_fault(state, description, (size_t)(comma - description)))
			return false;
		description = comma + 1;
	}
	return parse_fault(state, description, strlen(description));
}

static void free_faulty(faulty *state)
{
	free(state->started);
	free(state->incoming);
	free(state->held);
	free(state);
}

static faulty *allocate_faulty(uint32_t queue_depth)
{
	faulty *state = calloc(1, sizeof *state);

	if (!state)
		return NULL;
	state->queue_depth = queue_depth;
	state->started = calloc(queue_depth, sizeof *state->started);
	state->incoming = calloc((size_t)queue_depth + 1, sizeof *state->incoming);
	state->held = calloc(queue_depth, sizeof *state->held);
	if (state->started && state->incoming && state->held)
		return state;
	free_faulty(state);
	return NULL;
}

int weir_io_faulty_wrap(const weir_method *inner, void *inner_state, uint32_t queue_depth, const char *description,
			void **state, weir_error *error)
{
	faulty *wrapper = allocate_faulty(queue_depth);

	if (!wrapper)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for injected faults");
	if (!parse_description(wrapper, description)) {
		free_faulty(wrapper);
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "unknown I/O fault in \"%s\"", description);
	}
	wrapper->inner = inner;
	wrapper->inner_state = inner_state;
	wrapper->random = (wrapper->value[FAULT_SEED] ? wrapper->value[FAULT_SEED] : 1) * 0x9e3779b97f4a7c15u;
	atomic_store(&wrapper->due_ns, UINT64_MAX);
	*state = wrapper;
	return 0;
}

static void close_faulty(void *opened)
{
	faulty *state = opened;

	state->inner->close(state->inner_state);
	free_faulty(state);
}

static int add_file(void *opened, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error)
{
	faulty *state = opened;

	return state->inner->add_file(state->inner_state, fd, path, bytes, handle, error);
}

static void remove_file(void *opened, intptr_t handle)
{
	faulty *state = opened;

	state->inner->remove_file(state->inner_state, handle);
}

static void add_buffer(void *opened, void *base, uint64_t bytes)
{
	faulty *state = opened;

	state->inner->add_buffer(state->inner_state, base, bytes);
}

static bool strikes(const faulty *state, fault_kind kind)
{
	uint64_t n = state->value[kind];

	if (!n)
		return false;
	return RULES[kind].every ? state->reads_count % n == 0 : state->reads_count == n;
}

static int failure_of_this_read(const faulty *state)
{
	int kind;

	for (kind = 0; kind < FAULTS_COUNT; kind++) {
		if (RULES[kind].sys_errno && strikes(state, (fault_kind)kind))
			return RULES[kind].sys_errno;
	}
	return 0;
}

static uint32_t cut_of_this_read(faulty *state, uint32_t bytes)
{
	uint32_t half = bytes / 2 / SHORT_UNIT_BYTES * SHORT_UNIT_BYTES;

	if (strikes(state, FAULT_SHORT_ODD) && bytes > 1)
		return (uint32_t)(next_random(state) % (bytes - 1)) | 1;
	if (strikes(state, FAULT_SHORT) && half)
		return half;
	return UINT32_MAX;
}

static void hold(faulty *state, uint32_t piece, int32_t count)
{
	state->held[state->held_count++] = (held_result){
		.result = {.piece = piece, .count = count},
		.due_ns = state->started[piece].due_ns,
	};
}

static int start(void *opened, const weir_io_piece *piece)
{
	faulty *state = opened;
	started *record = &state->started[piece->index];
	int failure, result;

	state->reads_count++;
	record->piece = *piece;
	record->cut_to = cut_of_this_read(state, piece->bytes);
	record->due_ns = weir_clock_ns() + state->value[FAULT_LATENCY] * 1000u;
	failure = failure_of_this_read(state);
	if (failure) {
		hold(state, piece->index, -failure);
		return 0;
	}
	result = state->inner->start(state->inner_state, piece);
	if (result == 0)
		state->inner_in_flight++;
	return result;
}

static void take_incoming(faulty *state, const weir_io_result *result)
{
	const started *record = &state->started[result->piece];
	int32_t count = result->count;

	state->inner_in_flight--;
	if (count > 0 && (uint32_t)count > record->cut_to) {
		memset((unsigned char *)record->piece.buffer + record->cut_to, GARBAGE, (uint32_t)count - record->cut_to);
		count = (int32_t)record->cut_to;
	}
	hold(state, result->piece, count);
}

/* Held back for its order: half the queue at most, and nothing once no more is coming. */
static bool keeps_for_order(const faulty *state)
{
	return state->value[FAULT_REORDER] && state->inner_in_flight && state->held_count <= state->queue_depth / 2;
}

static void forget_held(faulty *state, uint32_t place)
{
	state->held_count--;
	memmove(state->held + place, state->held + place + 1, (state->held_count - place) * sizeof *state->held);
}

/* The place of a result to give now, or held_count. */
static uint32_t choose_due(faulty *state, uint64_t now_ns)
{
	uint32_t first = state->value[FAULT_REORDER] ? (uint32_t)(next_random(state) % state->held_count) : 0;
	uint32_t i;

	for (i = 0; i < state->held_count; i++) {
		uint32_t place = (first + i) % state->held_count;

		if (state->held[place].due_ns <= now_ns)
			return place;
	}
	return state->held_count;
}

static uint32_t give_due(faulty *state, weir_io_result *results, uint32_t capacity)
{
	uint64_t now_ns = weir_clock_ns();
	uint32_t count = 0, place;

	while (count < capacity && state->held_count && !keeps_for_order(state)) {
		place = choose_due(state, now_ns);
		if (place == state->held_count)
			break;
		results[count++] = state->held[place].result;
		forget_held(state, place);
	}
	return count;
}

static void set_due(faulty *state)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < state->held_count && !keeps_for_order(state); i++) {
		if (state->held[i].due_ns < due_ns)
			due_ns = state->held[i].due_ns;
	}
	atomic_store(&state->due_ns, due_ns);
}

static uint32_t collect(void *opened, weir_io_result *results, uint32_t capacity)
{
	faulty *state = opened;
	uint32_t incoming = state->inner->collect(state->inner_state, state->incoming, state->queue_depth + 1);
	uint32_t count = 0, i;

	for (i = 0; i < incoming; i++) {
		if (state->incoming[i].piece == WEIR_IO_WAKE_RESULT)
			results[count++] = state->incoming[i];
		else
			take_incoming(state, &state->incoming[i]);
	}
	count += give_due(state, results + count, capacity - count);
	set_due(state);
	return count;
}

static void flush(void *opened)
{
	faulty *state = opened;

	state->inner->flush(state->inner_state);
	set_due(state);
}

static void wait_for_due(void *opened, uint64_t timeout_us)
{
	faulty *state = opened;
	uint64_t due_ns = atomic_load(&state->due_ns), now_ns = weir_clock_ns(), left_us;

	if (due_ns <= now_ns)
		return;
	left_us = due_ns == UINT64_MAX ? UINT64_MAX : (due_ns - now_ns) / 1000u + 1;
	state->inner->wait(state->inner_state, left_us < timeout_us ? left_us : timeout_us);
}

static void wake(void *opened)
{
	faulty *state = opened;

	state->inner->wake(state->inner_state);
}

const weir_method weir_io_faulty = {
	.name = "faulty",
	.direct = true,
	.open = NULL,
	.close = close_faulty,
	.add_file = add_file,
	.remove_file = remove_file,
	.add_buffer = add_buffer,
	.start = start,
	.flush = flush,
	.collect = collect,
	.wait = wait_for_due,
	.wake = wake,
};

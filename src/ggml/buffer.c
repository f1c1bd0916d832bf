/*
 * buffer.c - ggml buffers of the device.
 *
 * Two kinds.  "Engine" buffers (KV cache, recurrent state, graph buffers) are anonymous memory of ours, so that the budget
 * sees them; they are not touched before a session starts, so a plan that does not fit costs nothing.  "Mapped" buffers lie
 * over libllama's mapping of a model file; each tensor made in one is recorded as a weight.
 *
 * A list of all engine buffers and of all sessions is kept here.  Threads: ggml creates and frees buffers from the thread
 * that loads or frees a model; a mutex guards the lists, since a program may use several.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "ggml/buffer.h"
#include "ggml/config.h"
#include "ggml/mapping.h"
#include "os/memory.h"

#include <ggml-backend-impl.h>

typedef struct engine_buffer {
	struct engine_buffer *next;
	ggml_backend_buffer_t buffer;
	void *base;
	size_t mapped_bytes;
	bool written; /* false: still all zero, so clearing to zero needs no write */
} engine_buffer;

static pthread_mutex_t lists_mutex = PTHREAD_MUTEX_INITIALIZER;
static engine_buffer *engine_buffers;
static weir_session *sessions;
static uint64_t generation; /* engine buffers made so far */

/* ---- data access, the same for both kinds ---- */

static void buffer_memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
				 size_t size)
{
	(void)buffer;
	memset((char *)tensor->data + offset, value, size);
}

static void buffer_set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
			      size_t size)
{
	(void)buffer;
	memcpy((char *)tensor->data + offset, data, size);
}

static void buffer_get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
			      size_t size)
{
	(void)buffer;
	memcpy(data, (const char *)tensor->data + offset, size);
}

static bool buffer_copy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *source, struct ggml_tensor *target)
{
	(void)buffer;
	if (!ggml_backend_buffer_is_host(source->buffer))
		return false;
	memcpy(target->data, source->data, ggml_nbytes(source));
	return true;
}

/* ---- engine buffers ---- */

static void *engine_base(ggml_backend_buffer_t buffer)
{
	return ((engine_buffer *)buffer->context)->base;
}

static void engine_free(ggml_backend_buffer_t buffer)
{
	engine_buffer *self = buffer->context;

	pthread_mutex_lock(&lists_mutex);
	for (engine_buffer **link = &engine_buffers; *link; link = &(*link)->next)
		if (*link == self) {
			*link = self->next;
			break;
		}
	pthread_mutex_unlock(&lists_mutex);
	munmap(self->base, self->mapped_bytes);
	free(self);
}

static void engine_memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
				 size_t size)
{
	((engine_buffer *)buffer->context)->written = true;
	buffer_memset_tensor(buffer, tensor, value, offset, size);
}

static void engine_set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
			      size_t size)
{
	((engine_buffer *)buffer->context)->written = true;
	buffer_set_tensor(buffer, tensor, data, offset, size);
}

static bool engine_copy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *source, struct ggml_tensor *target)
{
	((engine_buffer *)buffer->context)->written = true;
	return buffer_copy_tensor(buffer, source, target);
}

static void engine_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	engine_buffer *self = buffer->context;

	if (!self->written && value == 0)
		return;
	memset(self->base, value, buffer->size);
	self->written = true;
}

static const struct ggml_backend_buffer_i engine_interface = {
	.free_buffer = engine_free,
	.get_base = engine_base,
	.memset_tensor = engine_memset_tensor,
	.set_tensor = engine_set_tensor,
	.get_tensor = buffer_get_tensor,
	.cpy_tensor = engine_copy_tensor,
	.clear = engine_clear,
};

static ggml_backend_buffer_t type_alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
	engine_buffer *self = calloc(1, sizeof *self);

	if (!self)
		return NULL;
	self->mapped_bytes = size ? size : 1;
	self->base = mmap(NULL, self->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (self->base == MAP_FAILED) {
		free(self);
		return NULL;
	}
	self->buffer = ggml_backend_buffer_init(type, engine_interface, self, size);
	pthread_mutex_lock(&lists_mutex);
	self->next = engine_buffers;
	engine_buffers = self;
	generation++;
	pthread_mutex_unlock(&lists_mutex);
	return self->buffer;
}

uint64_t weir_buffer_generation(void)
{
	uint64_t now;

	pthread_mutex_lock(&lists_mutex);
	now = generation;
	pthread_mutex_unlock(&lists_mutex);
	return now;
}

void weir_buffer_mark_computed(void)
{
	pthread_mutex_lock(&lists_mutex);
	for (engine_buffer *b = engine_buffers; b; b = b->next)
		b->written = true;
	pthread_mutex_unlock(&lists_mutex);
}

static uint64_t touched_bytes_of(const engine_buffer *self)
{
	static unsigned char pages[1 << 14];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), step = sizeof pages * page;
	uint64_t touched = 0;

	for (size_t at = 0; at < self->mapped_bytes; at += step) {
		size_t length = self->mapped_bytes - at < step ? self->mapped_bytes - at : step;

		if (mincore((char *)self->base + at, length, pages))
			continue;
		for (size_t i = 0; i < (length + page - 1) / page; i++)
			touched += (pages[i] & 1) ? page : 0;
	}
	return touched;
}

void weir_buffer_sizes(uint64_t *kv_bytes, uint64_t *compute_bytes, uint64_t *touched_bytes)
{
	*kv_bytes = *compute_bytes = *touched_bytes = 0;
	pthread_mutex_lock(&lists_mutex);
	for (const engine_buffer *b = engine_buffers; b; b = b->next) {
		if (b->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE)
			*compute_bytes += b->mapped_bytes;
		else
			*kv_bytes += b->mapped_bytes;
		*touched_bytes += touched_bytes_of(b);
	}
	pthread_mutex_unlock(&lists_mutex);
}

static int populate(const engine_buffer *self)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	int code = weir_memory_populate(self->base, self->mapped_bytes);

	if (code != WEIR_EUNSUPPORTED)
		return code;
	for (size_t at = 0; at < self->mapped_bytes; at += page) { /* kernels before 5.14 */
		volatile char *byte = (char *)self->base + at;

		*byte = *byte;
	}
	return 0;
}

int weir_buffer_populate(weir_error *error)
{
	int failed = 0;

	pthread_mutex_lock(&lists_mutex);
	for (const engine_buffer *b = engine_buffers; b && !failed; b = b->next)
		failed = populate(b);
	pthread_mutex_unlock(&lists_mutex);
	if (failed)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "engine buffers cannot be brought into memory");
	return 0;
}

/* ---- mapped buffers ---- */

typedef struct mapped_buffer {
	weir_session *session;
	void *base;
} mapped_buffer;

static void mapped_free(ggml_backend_buffer_t buffer)
{
	mapped_buffer *self = buffer->context;
	weir_session *session = self->session;
	bool last;

	pthread_mutex_lock(&lists_mutex);
	last = --session->buffers == 0;
	if (last)
		for (weir_session **link = &sessions; *link; link = &(*link)->next)
			if (*link == session) {
				*link = session->next;
				break;
			}
	pthread_mutex_unlock(&lists_mutex);
	if (last)
		weir_session_free(session);
	free(self);
}

static void *mapped_base(ggml_backend_buffer_t buffer)
{
	return ((mapped_buffer *)buffer->context)->base;
}

static enum ggml_status mapped_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor)
{
	mapped_buffer *self = buffer->context;

	if (tensor->view_src) /* views that graphs make of weights come here too */
		return GGML_STATUS_SUCCESS;
	return weir_weights_add(self->session, tensor) ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
}

static void mapped_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	(void)buffer; /* a model file is never written to */
	(void)value;
}

static const struct ggml_backend_buffer_i mapped_interface = {
	.free_buffer = mapped_free,
	.get_base = mapped_base,
	.init_tensor = mapped_init_tensor,
	.get_tensor = buffer_get_tensor,
	.cpy_tensor = buffer_copy_tensor,
	.clear = mapped_clear,
};

static weir_session *session_for_load(void)
{
	weir_session *session = sessions;

	if (session && !session->started) /* the next shard of the same model */
		return session;
	session = calloc(1, sizeof *session);
	if (!session)
		return NULL;
	session->options = *weir_config();
	weir_threads_begin(&session->threads, session->options.threads_auto ? session->options.threads : 0);
	session->page_cache = !session->options.io_method || !strcmp(session->options.io_method, "auto");
	session->next = sessions;
	sessions = session;
	return session;
}

static int join_session(mapped_buffer *self, size_t size)
{
	int result;

	pthread_mutex_lock(&lists_mutex);
	self->session = session_for_load();
	result = self->session ? weir_mapping_add(self->session, self->base, size) : WEIR_ENOMEM;
	if (!result)
		self->session->buffers++;
	pthread_mutex_unlock(&lists_mutex);
	return result;
}

ggml_backend_buffer_t weir_buffer_from_mapping(ggml_backend_dev_t device, void *base, size_t size)
{
	mapped_buffer *self = calloc(1, sizeof *self);

	if (!self)
		return NULL;
	self->base = base;
	if (join_session(self, size)) {
		free(self);
		return NULL;
	}
	/* In a program that prefaults its mappings the whole file is in memory now: give those pages back. */
	weir_mapping_drop(base, size);
	return ggml_backend_buffer_init(weir_buffer_type(device), mapped_interface, self, size);
}

weir_session *weir_backend_session(void)
{
	weir_session *session;

	pthread_mutex_lock(&lists_mutex);
	session = sessions;
	pthread_mutex_unlock(&lists_mutex);
	return session;
}

static weir_session *session_of_tensor(const struct ggml_tensor *tensor)
{
	while (tensor && tensor->view_src)
		tensor = tensor->view_src;
	if (!tensor || !tensor->buffer || tensor->buffer->iface.init_tensor != mapped_init_tensor)
		return NULL;
	return ((mapped_buffer *)tensor->buffer->context)->session;
}

weir_session *weir_buffer_session_of(struct ggml_cgraph *graph)
{
	int count = ggml_graph_n_nodes(graph);

	for (int i = 0; i < count; i++) {
		const struct ggml_tensor *node = ggml_graph_node(graph, i);

		for (int s = 0; s < GGML_MAX_SRC; s++) {
			weir_session *session = session_of_tensor(node->src[s]);

			if (session)
				return session;
		}
	}
	return NULL;
}

/* ---- the buffer type ---- */

static const char *type_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "WEIR";
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
}

static bool type_is_host(ggml_backend_buffer_type_t type)
{
	(void)type;
	return true;
}

ggml_backend_buffer_type_t weir_buffer_type(ggml_backend_dev_t device)
{
	static struct ggml_backend_buffer_type type = {
		.iface = {.get_name = type_name,
			  .alloc_buffer = type_alloc_buffer,
			  .get_alignment = type_alignment,
			  .is_host = type_is_host},
	};

	type.device = device;
	return &type;
}

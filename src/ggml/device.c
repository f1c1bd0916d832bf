/*
 * device.c - the ggml device WEIR0: registry entry, device, backend, as ggml's backend interface wants them.
 *
 * Computing is delegated to ggml's own CPU backend; what weir adds is where weights live.  Type ACCEL, so that libllama also
 * places the token embeddings here; buffers are host memory (buffer.c), so that the scheduler hands over whole graphs without
 * copies.  One device for each process; it is never freed.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "ggml/buffer.h"
#include "ggml/config.h"
#include "ggml/plugin.h"
#include "ggml/session.h"
#include "weir/version.h"

#include <ggml-backend-impl.h>

#define DEVICE_NAME "WEIR0"

typedef struct weir_backend {
	ggml_backend_t inner;
	weir_session *session; /* of the graph in progress */
	ggml_abort_callback abort_callback;
	void *abort_user;
} weir_backend;

static ggml_backend_dev_t cpu_device(void)
{
	return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

/* ---- backend ---- */

static const char *backend_name(ggml_backend_t backend)
{
	(void)backend;
	return DEVICE_NAME;
}

static void backend_free(ggml_backend_t backend)
{
	weir_backend *self = backend->context;

	ggml_backend_free(self->inner);
	free(self);
	free(backend);
}

static bool backend_should_abort(void *user)
{
	weir_backend *self = user;

	if (self->session && self->session->failed)
		return true;
	return self->abort_callback && self->abort_callback(self->abort_user);
}

static enum ggml_status backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
	weir_backend *self = backend->context;
	weir_session *session = weir_buffer_session_of(graph);
	enum ggml_status status;
	weir_error error;

	weir_buffer_mark_computed();
	if (!session)
		return ggml_backend_graph_compute(self->inner, graph);
	session->failed = false;
	memset(&session->error, 0, sizeof session->error);
	weir_session_adapt(session, graph);
	if (!session->started) {
		weir_weights_learn(session, graph);
		if (weir_session_start(session, &error)) {
			weir_session_set_error(session, &error);
			weir_config_complain(&error);
			return GGML_STATUS_FAILED;
		}
	}
	self->session = session;
	status = weir_graph_compute(session, self->inner, graph);
	self->session = NULL;
	if (session->failed) {
		weir_config_complain(&session->error);
		return GGML_STATUS_FAILED;
	}
	return status;
}

static void backend_graph_optimize(ggml_backend_t backend, struct ggml_cgraph *graph,
				   struct ggml_backend_graph_optimize_params *params)
{
	weir_session *session = weir_buffer_session_of(graph);
	uint64_t work_bytes;
	uint32_t threads;

	(void)backend;
	(void)params;
	if (!session || (session->started && session->generation == weir_buffer_generation()))
		return;
	weir_weights_learn(session, graph);
	threads = session->options.threads ? session->options.threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	work_bytes = ggml_graph_plan(graph, (int)threads, NULL).work_size;
	if (session->work_bytes < work_bytes)
		session->work_bytes = work_bytes;
}

static const struct ggml_backend_i backend_interface = {
	.get_name = backend_name,
	.free = backend_free,
	.graph_compute = backend_graph_compute,
	.graph_optimize = backend_graph_optimize,
};

static ggml_guid_t backend_guid(void)
{
	static ggml_guid guid = {0x77, 0x65, 0x69, 0x72, 0x2d, 0x67, 0x67, 0x6d,
				 0x6c, 0x2d, 0x30, 0x2e, 0x31, 0x00, 0x00, 0x01};

	return &guid;
}

static ggml_backend_t device_init_backend(ggml_backend_dev_t device, const char *params)
{
	ggml_backend_t backend = calloc(1, sizeof *backend);
	weir_backend *self = calloc(1, sizeof *self);

	(void)params;
	if (!backend || !self)
		goto fail;
	self->inner = ggml_backend_dev_init(cpu_device(), NULL);
	if (!self->inner)
		goto fail;
	ggml_backend_cpu_set_abort_callback(self->inner, backend_should_abort, self);
	backend->guid = backend_guid();
	backend->iface = backend_interface;
	backend->device = device;
	backend->context = self;
	return backend;
fail:
	free(self);
	free(backend);
	return NULL;
}

static bool is_ours(ggml_backend_t backend)
{
	return backend && backend->iface.graph_compute == backend_graph_compute;
}

static void backend_set_n_threads(ggml_backend_t backend, int threads)
{
	if (is_ours(backend))
		ggml_backend_cpu_set_n_threads(((weir_backend *)backend->context)->inner, threads);
}

static void backend_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *user)
{
	if (is_ours(backend)) {
		((weir_backend *)backend->context)->abort_callback = callback;
		((weir_backend *)backend->context)->abort_user = user;
	}
}

/* ---- device ---- */

static const char *device_name(ggml_backend_dev_t device)
{
	(void)device;
	return DEVICE_NAME;
}

static const char *device_description(ggml_backend_dev_t device)
{
	(void)device;
	return "weights streamed from the drive within a memory budget";
}

/* What a fit against "device memory" should see: streaming makes any model fit, so say that there is room. */
static void device_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total_bytes)
{
	(void)device;
	ggml_backend_dev_memory(cpu_device(), free_bytes, total_bytes);
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
	(void)device;
	return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof *props);
	props->name = device_name(device);
	props->description = device_description(device);
	props->type = device_type(device);
	device_memory(device, &props->memory_free, &props->memory_total);
	props->caps.buffer_from_host_ptr = true;
	props->caps.mmap_support = true;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device)
{
	return weir_buffer_type(device);
}

static ggml_backend_buffer_t device_buffer_from_host_ptr(ggml_backend_dev_t device, void *base, size_t size, size_t max_tensor)
{
	(void)max_tensor;
	return weir_buffer_from_mapping(device, base, size);
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *operation)
{
	(void)device;
	return ggml_backend_dev_supports_op(cpu_device(), operation);
}

static bool device_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
	return type == weir_buffer_type(device) || ggml_backend_buft_is_host(type);
}

static const struct ggml_backend_device_i device_interface = {
	.get_name = device_name,
	.get_description = device_description,
	.get_memory = device_memory,
	.get_type = device_type,
	.get_props = device_props,
	.init_backend = device_init_backend,
	.get_buffer_type = device_buffer_type,
	.buffer_from_host_ptr = device_buffer_from_host_ptr,
	.supports_op = device_supports_op,
	.supports_buft = device_supports_buft,
};

/* ---- registry entry ---- */

static const char *reg_name(ggml_backend_reg_t reg)
{
	(void)reg;
	return "WEIR";
}

static size_t reg_device_count(ggml_backend_reg_t reg)
{
	(void)reg;
	return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index)
{
	static struct ggml_backend_device device;

	(void)index;
	device.iface = device_interface;
	device.reg = reg;
	return &device;
}

/* Function pointers travel as void pointers in ggml's interface; C has no cast for that, a copy has the same bits. */
static void *as_pointer(void (*function)(void))
{
	void *pointer;

	memcpy(&pointer, &function, sizeof pointer);
	return pointer;
}

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name)
{
	static const struct {
		const char *name;
		void (*function)(void);
	} functions[] = {
		{"ggml_backend_set_n_threads", (void (*)(void))backend_set_n_threads},
		{"ggml_backend_set_abort_callback", (void (*)(void))backend_set_abort_callback},
		{"weir_plugin_configure", (void (*)(void))weir_plugin_configure},
		{"weir_plugin_take_error", (void (*)(void))weir_plugin_take_error},
		{"weir_plugin_write_report", (void (*)(void))weir_plugin_write_report},
		{"weir_plugin_engine_version", (void (*)(void))weir_plugin_engine_version},
	};

	(void)reg;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!strcmp(name, functions[i].name))
			return as_pointer(functions[i].function);
	return NULL;
}

struct ggml_backend_reg *weir_backend_reg(void)
{
	static struct ggml_backend_reg reg = {
		.api_version = GGML_BACKEND_API_VERSION,
		.iface = {.get_name = reg_name,
			  .get_device_count = reg_device_count,
			  .get_device = reg_device,
			  .get_proc_address = reg_proc_address},
	};

	return &reg;
}

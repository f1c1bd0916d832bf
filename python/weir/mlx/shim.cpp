/*
 * shim.cpp - the few things that MLX offers to C++ and not to Python, as functions of C.
 *
 * Compiled on the user's machine against the headers of the MLX that is installed there (_shim.py), linked to libmlx alone, and
 * called through ctypes: `object` is the address of the C++ array inside a Python mx.array.
 *
 * Who owns what: an alias holds `owner`, and calls release(owner) once when the last array over the memory is gone, in whatever
 * thread of MLX that is.  release is native code: it takes no lock of an interpreter.
 *
 * Refuses: backends that keep arrays in memory of a device and cannot take ours.  No exception crosses the border: a function
 * returns 0, or -1 with a message.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <unistd.h>
#include <utility>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/device.h"
#include "mlx/primitives.h"
#include "mlx/version.h"

namespace mx = mlx::core;

namespace
{

constexpr int RANK_MAX = 16;
constexpr size_t MESSAGE_BYTES = 256;

int fail(char *message, const char *text)
{
	std::snprintf(message, MESSAGE_BYTES, "%s", text);
	return -1;
}

/* MLX's own allocator puts the size of a buffer before its bytes.  A header of that kind stands for our memory, and the array's
 * offset leads from the header's end to it. */
mx::allocator::Data data_over(char *address, size_t bytes, void (*release)(void *), void *owner, int64_t *offset)
{
	const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
	char *start = reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(address) & ~(page - 1));
	size_t span = (static_cast<size_t>(address - start) + bytes + page - 1) & ~(page - 1);
	mx::allocator::Buffer buffer = mx::allocator::make_buffer(start, span);

	if (buffer.ptr()) { /* Metal: a buffer over whole pages */
		*offset = address - start;
		return {buffer, [release, owner](mx::allocator::Buffer made) {
				mx::allocator::release(made);
				release(owner);
			}};
	}
	if (mx::is_available(mx::Device::gpu))
		throw std::runtime_error("this backend of MLX takes no memory that it did not allocate");
	auto *header = static_cast<size_t *>(std::malloc(sizeof(size_t)));
	if (!header)
		throw std::bad_alloc();
	*header = bytes;
	*offset = reinterpret_cast<intptr_t>(address) - reinterpret_cast<intptr_t>(header + 1);
	return {mx::allocator::Buffer(header), [release, owner](mx::allocator::Buffer made) {
			std::free(made.ptr());
			release(owner);
		}};
}

void released_by_nobody(void *)
{
}

/* MLX tells who holds a buffer, not who holds an array: an array is a shared pointer, and nothing else. */
int64_t references_of(const mx::array &array)
{
	static_assert(sizeof(mx::array) == sizeof(std::shared_ptr<void>), "an array is one shared pointer");
	return reinterpret_cast<const std::shared_ptr<void> *>(&array)->use_count();
}

struct Armed { /* so that a failure half-way does not release what the caller still owns */
	void (*release)(void *) = released_by_nobody;
	void *owner = nullptr;
};

void release_armed(void *pointer)
{
	auto *armed = static_cast<Armed *>(pointer);

	armed->release(armed->owner);
	delete armed;
}

} // namespace

extern "C" {

struct weir_mlx_view {
	const void *data; /* of the first element; NULL while it is not computed */
	const char *primitive; /* what will compute it ("Slice"); "" when it is computed */
	uint64_t id; /* of what the array is: the same for all that share it */
	int64_t strides[RANK_MAX]; /* elements */
	int32_t shape[RANK_MAX];
	int32_t rank, item_bytes, inputs_count;
	int32_t tracer; /* inside mx.compile, mx.vmap or mx.grad */
};

const char *weir_mlx_compiled_for(void)
{
	static char text[32];

	std::snprintf(text, sizeof text, "%d.%d.%d", MLX_VERSION_MAJOR, MLX_VERSION_MINOR, MLX_VERSION_PATCH);
	return text;
}

const char *weir_mlx_running(void)
{
	return mx::version();
}

int weir_mlx_inspect(void *object, weir_mlx_view *view, char *message)
{
	try {
		auto &array = *static_cast<mx::array *>(object);

		if (array.ndim() > RANK_MAX)
			return fail(message, "an array of more than 16 dimensions");
		*view = {};
		view->rank = static_cast<int32_t>(array.ndim());
		view->item_bytes = static_cast<int32_t>(array.itemsize());
		view->tracer = array.is_tracer();
		view->id = array.id();
		view->primitive = array.has_primitive() ? array.primitive().name() : "";
		view->inputs_count = static_cast<int32_t>(array.inputs().size());
		if (array.is_available() && array.data_shared_ptr())
			view->data = array.data<char>();
		for (int i = 0; i < view->rank; i++) {
			view->shape[i] = array.shape(i);
			view->strides[i] = view->data ? array.strides()[static_cast<size_t>(i)] : 0;
		}
		return 0;
	} catch (const std::exception &problem) {
		return fail(message, problem.what());
	}
}

enum weir_mlx_progress { WEIR_MLX_UNWANTED, WEIR_MLX_WANTED, WEIR_MLX_RUNNING, WEIR_MLX_DONE };

/* How far a result is that one Python object holds, for memory that it is computed from.  May be asked while another thread
 * evaluates it: MLX marks what it has scheduled before it drops the references to it, so they are read in the opposite order.
 * What the eval() of another thread has scheduled is DONE only when that thread's stream has been waited for. */
int weir_mlx_progress_of(void *object, char *message)
{
	try {
		const auto &array = *static_cast<const mx::array *>(object);
		const bool wanted = references_of(array) > 1;

		std::atomic_thread_fence(std::memory_order_acquire);
		if (array.status() == mx::array::Status::unscheduled)
			return wanted ? WEIR_MLX_WANTED : WEIR_MLX_UNWANTED;
		return array.is_available() ? WEIR_MLX_DONE : WEIR_MLX_RUNNING;
	} catch (const std::exception &problem) {
		return fail(message, problem.what());
	}
}

/* Makes `target` the same array as input `index` of `object`. */
int weir_mlx_input(void *object, int32_t index, void *target, char *message)
{
	auto &array = *static_cast<mx::array *>(object);

	if (index < 0 || static_cast<size_t>(index) >= array.inputs().size())
		return fail(message, "no such input");
	mx::array input = array.inputs()[static_cast<size_t>(index)];
	static_cast<mx::array *>(target)->overwrite_descriptor(input);
	return 0;
}

/* Makes `object`, which has shape and type but no data yet, an array over `address`.  `strides` in elements; NULL: C order.
 * On success the array owns `owner`; on failure the caller still does. */
int weir_mlx_alias(void *object, void *address, const int64_t *strides, void (*release)(void *), void *owner, char *message)
{
	try {
		auto &target = *static_cast<mx::array *>(object);
		mx::array made(target.shape(), target.dtype(), nullptr, {});
		mx::Strides steps = made.strides();
		size_t span = made.size();
		int largest = 1;
		int64_t offset = 0;
		auto armed = std::make_unique<Armed>();
		Armed *held = armed.get();
		mx::array::Flags flags;

		for (int dimension : made.shape())
			largest = std::max(largest, dimension);
		flags = {true, true, made.size() == static_cast<size_t>(largest)}; /* a row or a column is both */

		if (strides) {
			span = 1;
			for (size_t i = 0; i < made.ndim(); i++) {
				steps[i] = strides[i];
				span += static_cast<size_t>(made.shape(static_cast<int>(i)) - 1) *
					static_cast<size_t>(strides[i]);
			}
			flags = {false, false, false};
		}
		auto data = data_over(static_cast<char *>(address), span * made.itemsize(), release_armed, held, &offset);
		armed.release(); /* the data's now */
		made.set_data(std::move(data), span, steps, flags, offset);
		made.set_status(mx::array::Status::available);
		if (made.data<char>() != address)
			return fail(message, "this MLX lays its buffers out in another way");
		held->owner = owner;
		held->release = release;
		target.overwrite_descriptor(made);
		return 0;
	} catch (const std::exception &problem) {
		return fail(message, problem.what());
	}
}

} // extern "C"

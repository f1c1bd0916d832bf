/*
 * packed.c - see packed.h.
 *
 *   the engine's tensor ──► file and offset of the model ──► the same tensor in the pack: offset, slices, checksums
 *
 * The engine still maps the model file and reads its header; only where bytes are read from changes.  The pack becomes one
 * more file of the session.  An expert tensor lies in slices there, which suits slots; a model that fits into memory as a
 * whole is read from its own file, where each tensor is one run, unless the pack has replaced that.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/fail.h"
#include "ggml/packed.h"
#include "ggml/reads.h"
#include "os/holes.h"
#include "os/memory.h"
#include "residency/store_checks.h"
#include "weir/pack.h"

#define PIECE_BYTES (512u << 10)
#define PIECES 4u /* in flight while slices are loaded */

struct weir_packed {
	weir_pack *pack; /* NULL: none that can be used */
	uint32_t file; /* of the session */
	uint64_t *sums; /* of the store's chunks */
	weir_error notice;
};

/* ---- finding it ---- */

static bool is_shard(const weir_file *file, const char *path)
{
	struct stat ours, theirs;

	return stat(file->path, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino;
}

/* shards[i]: the shard of the checkpoint that file i of the session is. */
static bool match_files(const weir_session *session, const weir_checkpoint *checkpoint, uint32_t *shards)
{
	for (uint32_t i = 0; i < session->files_count; i++) {
		uint32_t shard = 0;

		while (shard < weir_checkpoint_shards_count(checkpoint) &&
		       !is_shard(&session->files[i], weir_checkpoint_shard_path(checkpoint, shard)))
			shard++;
		if (shard == weir_checkpoint_shards_count(checkpoint))
			return false;
		shards[i] = shard;
	}
	return true;
}

/* By place, since the engine may give a tensor another name than its file does.  UINT32_MAX: none. */
static uint32_t find_tensor(const weir_pack *pack, const weir_weight *weight, uint32_t shard)
{
	for (uint32_t i = 0; i < weir_pack_tensors_count(pack); i++) {
		const weir_tensor *source = &weir_pack_tensor_at(pack, i)->source;

		if (source->shard == shard && source->offset == weight->offset && source->bytes == weight->bytes)
			return i;
	}
	return UINT32_MAX;
}

static int match_weights(weir_session *session, const weir_pack *pack, const weir_checkpoint *checkpoint, weir_error *error)
{
	uint32_t *shards = calloc((size_t)session->files_count + 1, sizeof *shards);
	bool all = shards && match_files(session, checkpoint, shards);

	for (uint32_t i = 0; i < session->weights_count && all; i++) {
		weir_weight *weight = &session->weights[i];

		weight->packed = find_tensor(pack, weight, shards[weight->file]);
		all = weight->packed != WEIR_NO_WEIGHT ||
		      !weight->bytes; /* the engine may have made a tensor that no file has */
	}
	free(shards);
	if (all)
		return 0;
	for (uint32_t i = 0; i < session->weights_count; i++)
		session->weights[i].packed = WEIR_NO_WEIGHT;
	return weir_fail(error, WEIR_ECHANGED, weir_pack_file(pack), WEIR_ERROR_NO_OFFSET, 0,
			 "the pack does not hold what the engine has loaded");
}

static int add_file(weir_session *session, const char *path, uint32_t *index)
{
	weir_file *files = realloc(session->files, ((size_t)session->files_count + 1) * sizeof *files);
	weir_file added = {.path = strdup(path)};

	if (files)
		session->files = files;
	if (!files || !added.path) {
		free(added.path);
		return WEIR_ENOMEM;
	}
	*index = session->files_count;
	session->files[session->files_count++] = added;
	return 0;
}

static int adopt(weir_session *session, weir_pack *pack, weir_error *error)
{
	weir_checkpoint *checkpoint;
	int code = weir_checkpoint_open(session->files[0].path, NULL, &checkpoint, error);

	if (code)
		return code;
	code = weir_pack_matches(pack, checkpoint, error);
	if (!code)
		code = match_weights(session, pack, checkpoint, error);
	weir_checkpoint_close(checkpoint);
	if (!code && add_file(session, weir_pack_file(pack), &session->packed->file))
		code = weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	return code;
}

static bool is_there(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0;
}

static void look_for_pack(weir_session *session)
{
	const char *named = session->options.pack_path;
	char *path = named ? strdup(named) : weir_pack_path_beside(session->files[0].path);
	weir_packed *packed = session->packed;
	weir_pack *pack = NULL;

	if (path && *path && is_there(path) && !weir_pack_open(path, &pack, &packed->notice) &&
	    !adopt(session, pack, &packed->notice)) {
		packed->pack = pack;
		pack = NULL;
	}
	weir_pack_close(pack);
	free(path);
}

/* ---- a model without a pack must be whole ---- */

static int check_weights_of(const weir_session *session, uint32_t file, int fd, weir_error *error)
{
	uint64_t at;

	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];

		if (weight->file != file || !weir_holes_spoil(fd, weight->offset, weight->offset + weight->bytes, &at))
			continue;
		return weir_fail(
			error, WEIR_EUNSUPPORTED, session->files[file].path, at, 0,
			"tensor '%.100s' is not there: the file has a hole (its weights were moved to a pack by 'weir pack "
			"--replace', or never written)%s%.150s",
			weight->tensor->name, session->packed->notice.code ? "; the pack: " : "",
			session->packed->notice.code ? session->packed->notice.message : "");
	}
	return 0;
}

static int check_holes(const weir_session *session, weir_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < session->files_count && !code; i++) {
		int fd = open(session->files[i].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		uint64_t from, end;
		off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

		if (bytes > 0 && weir_holes_next(fd, 0, (uint64_t)bytes, &from, &end))
			code = check_weights_of(session, i, fd, error);
		if (fd >= 0)
			close(fd);
	}
	return code;
}

int weir_packed_open(weir_session *session, weir_error *error)
{
	if (!session->packed) {
		session->packed = calloc(1, sizeof *session->packed);
		if (!session->packed)
			return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
		look_for_pack(session);
	}
	return session->packed->pack ? 0 : check_holes(session, error);
}

void weir_packed_close(weir_packed *packed)
{
	if (!packed)
		return;
	weir_pack_close(packed->pack);
	free(packed->sums);
	free(packed);
}

const char *weir_packed_path(const weir_packed *packed)
{
	return packed && packed->pack ? weir_pack_file(packed->pack) : NULL;
}

const weir_error *weir_packed_notice(const weir_packed *packed)
{
	static const weir_error none;

	return packed ? &packed->notice : &none;
}

/* ---- using it ---- */

bool weir_packed_is_sliced(const weir_weight *weight)
{
	return weight->stride != weight->tensor->nb[2];
}

void weir_packed_use(weir_session *session)
{
	const weir_packed *packed = session->packed;

	for (uint32_t i = 0; i < session->weights_count; i++) {
		weir_weight *weight = &session->weights[i];
		const weir_pack_tensor *tensor = packed->pack ? weir_pack_tensor_at(packed->pack, weight->packed) : NULL;
		bool sliced = tensor && tensor->slices_count > 1;

		weight->file = weight->mapped_file;
		weight->offset = weight->mapped_offset;
		weight->stride = weight->tensor->nb[2];
		if (!tensor || (sliced && weight->place != PLACE_SLOTS && !weir_pack_replaces(packed->pack)))
			continue;
		weight->file = packed->file;
		weight->offset = tensor->offset;
		if (sliced)
			weight->stride = tensor->stride_bytes;
	}
}

/* ---- checksums ---- */

static int fail_sum(const weir_pack *pack, uint64_t offset, const char *name, weir_error *error)
{
	return weir_fail(error, WEIR_ECHECKSUM, weir_pack_file(pack), offset, 0,
			 "tensor '%.100s': the checksum does not match ('weir verify' says more)", name);
}

static int check_slice(const weir_pack *pack, uint32_t index, uint32_t slice, const char *data, weir_error *error)
{
	const weir_pack_tensor *tensor = weir_pack_tensor_at(pack, index);
	uint64_t unit = 0;

	for (uint64_t at = 0; at < tensor->slice_bytes; at += tensor->unit_bytes, unit++) {
		uint64_t left = tensor->slice_bytes - at, bytes = left < tensor->unit_bytes ? left : tensor->unit_bytes;

		if (XXH3_64bits(data + at, bytes) != weir_pack_checksum(pack, index, slice, unit))
			return fail_sum(pack, tensor->offset + slice * tensor->stride_bytes + at, tensor->source.name, error);
	}
	return 0;
}

int weir_packed_check_resident(const weir_session *session, weir_error *error)
{
	const weir_packed *packed = session->packed;
	int code = 0;

	for (uint32_t i = 0; packed->pack && i < session->weights_count && !code; i++) {
		const weir_weight *weight = &session->weights[i];
		const weir_pack_tensor *tensor = weir_pack_tensor_at(packed->pack, weight->packed);

		if (!tensor || weight->place != PLACE_RESIDENT || weight->file != packed->file)
			continue;
		for (uint32_t s = 0; s < tensor->slices_count && !code; s++)
			code = check_slice(packed->pack, weight->packed, s,
					   (const char *)weight->tensor->data + s * tensor->slice_bytes, error);
	}
	return code;
}

/* Fills in the sums of a weight's chunks; false when a chunk has none of its own. */
static bool put_sums(const weir_packed *packed, const weir_weight *weight)
{
	const weir_pack_tensor *tensor = weir_pack_tensor_at(packed->pack, weight->packed);

	if (!tensor || tensor->unit_bytes != tensor->slice_bytes || tensor->slices_count != (uint32_t)weight->tensor->ne[2])
		return false;
	for (uint32_t e = 0; e < tensor->slices_count; e++)
		packed->sums[weight->chunk_first + e] = weir_pack_checksum(packed->pack, weight->packed, e, 0);
	return true;
}

int weir_packed_check_store(weir_session *session, weir_error *error)
{
	weir_packed *packed = session->packed;
	uint32_t chunks = 0;

	if (!packed->pack)
		return 0;
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (session->weights[i].place == PLACE_SLOTS)
			chunks += (uint32_t)session->weights[i].tensor->ne[2];
	free(packed->sums);
	packed->sums = calloc((size_t)chunks + 1, sizeof *packed->sums);
	if (!packed->sums)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for checksums");
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (session->weights[i].place == PLACE_SLOTS && !put_sums(packed, &session->weights[i]))
			return 0;
	weir_store_check_reads(session->store, packed->sums);
	return 0;
}

/* ---- slices that stay in memory ---- */

typedef struct piece {
	weir_read read;
	void *buffer, *data;
	char *target;
	uint64_t bytes; /* 0: not in use */
} piece;

static int finish_piece(weir_session *session, piece *p, weir_error *error)
{
	uint64_t stall_ns = 0;
	int code;

	if (!p->bytes)
		return 0;
	code = weir_reads_wait(session, &p->read, &stall_ns, error);
	if (!code)
		memcpy(p->target, p->data, p->bytes);
	session->start_bytes_read += p->bytes;
	p->bytes = 0;
	return code;
}

static int load_slice(weir_session *session, const weir_weight *weight, uint32_t slice, piece *pieces, uint32_t *next,
		      weir_error *error)
{
	uint64_t bytes = weight->tensor->nb[2];
	int code = 0;

	for (uint64_t at = 0; at < bytes && !code; at += PIECE_BYTES) {
		piece *p = &pieces[(*next)++ % PIECES];

		code = finish_piece(session, p, error);
		if (code)
			break;
		p->bytes = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
		p->target = (char *)weight->tensor->data + slice * bytes + at;
		code = weir_reads_start(session, &p->read, weight->file, weight->offset + slice * weight->stride + at, p->bytes,
					p->buffer, &p->data, error);
		if (code)
			p->bytes = 0;
	}
	return code;
}

static int load_all(weir_session *session, piece *pieces, weir_error *error)
{
	uint32_t next = 0;
	int code = 0;

	for (uint32_t i = 0; i < session->weights_count && !code; i++) {
		const weir_weight *weight = &session->weights[i];

		if (weight->place != PLACE_RESIDENT || !weir_packed_is_sliced(weight))
			continue;
		for (uint32_t s = 0; s < (uint32_t)weight->tensor->ne[2] && !code; s++)
			code = load_slice(session, weight, s, pieces, &next, error);
	}
	for (uint32_t i = 0; i < PIECES; i++) /* the buffers must not be written to any more */
		if (finish_piece(session, &pieces[i], code ? NULL : error) && !code)
			code = error ? error->code : WEIR_EIO;
	return code;
}

int weir_packed_load(weir_session *session, weir_error *error)
{
	uint64_t room = weir_reads_room(session, PIECE_BYTES);
	piece pieces[PIECES] = {{.bytes = 0}};
	void *memory;
	int code = weir_memory_map(PIECES * room, false, &memory, error);

	if (code)
		return code;
	for (uint32_t i = 0; i < PIECES; i++)
		pieces[i].buffer = (char *)memory + i * room;
	code = load_all(session, pieces, error);
	weir_memory_unmap(memory, PIECES * room);
	return code;
}

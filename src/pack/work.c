/*
 * work.c - see work.h.
 *
 * A worker has two buffers: `in` for the aligned superset of what it reads, `out` for what it writes.  Jobs are handed out in
 * order; when one fails, no further ones are, and those under way end by themselves, so that the first failure in order of
 * items is the one that is told.
 */
#include "pack/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fail.h"
#include "os/memory.h"

#define BUFFER_BYTES ((uint64_t)4 << 20)
#define SLACK_BYTES ((uint64_t)256 << 10) /* aligning a read at both ends */
#define THREADS_MAX 32u
#define FALL_BACK_TRIES_MAX 2
#define PROGRESS_NS 100000000

typedef struct job {
	uint64_t first, end; /* items */
	uint64_t from, to; /* output */
} job;

typedef struct work_crew {
	weir_work *work;
	pthread_mutex_t lock;
	pthread_cond_t news;
	job *jobs;
	bool *done; /* by job */
	uint64_t jobs_count, jobs_next, done_prefix;
	uint64_t bytes_done, bytes_total;
	uint32_t running;
	bool stop;
	int code; /* of the first failure */
	uint64_t failed_item;
	weir_error error;
} work_crew;

typedef struct worker {
	work_crew *crew;
	pthread_t thread;
	unsigned char *in, *out;
	XXH3_state_t *state;
	uint64_t item; /* in work, for failures */
} worker;

void weir_work_enable_direct(weir_work_file *file, uint32_t alignment_max)
{
	weir_direct_enable(file->file.descriptor, &file->direct);
	if (file->direct.works && (file->direct.offset_bytes > alignment_max || file->direct.memory_bytes > alignment_max)) {
		weir_direct_disable(file->file.descriptor);
		file->direct = (weir_direct){.works = false, .offset_bytes = 1, .memory_bytes = 1};
	}
}

/* ---- jobs ---- */

/* Cuts items[first..) into jobs: a job ends where the next item begins aligned and the job is long enough. */
static uint64_t cut_jobs(const weir_work *work, job *jobs)
{
	uint64_t count = 0, begin = work->first;

	for (uint64_t i = work->first; i < work->items_count; i++) {
		bool last = i + 1 == work->items_count;
		uint64_t next = last ? work->end : work->items[i + 1].offset, from = work->items[begin].offset;
		bool full = last || next - from >= BUFFER_BYTES || next + work->items[i + 1].bytes - from > BUFFER_BYTES;

		if (!last && (next % work->alignment || !full))
			continue;
		if (jobs)
			jobs[count] = (job){.first = begin, .end = i + 1, .from = from, .to = next};
		count++;
		begin = i + 1;
	}
	return count;
}

static int make_jobs(work_crew *crew)
{
	const weir_work *work = crew->work;

	crew->jobs_count = cut_jobs(work, NULL);
	crew->jobs = calloc(crew->jobs_count + 1, sizeof *crew->jobs);
	crew->done = calloc(crew->jobs_count + 1, sizeof *crew->done);
	if (!crew->jobs || !crew->done)
		return WEIR_ENOMEM;
	cut_jobs(work, crew->jobs);
	for (uint64_t i = 0; i < work->items_count; i++)
		crew->bytes_total += work->items[i].skip ? 0 : work->items[i].bytes;
	for (uint64_t i = 0; i < work->first; i++)
		crew->bytes_done += work->items[i].bytes;
	return 0;
}

/* ---- reading and writing ---- */

/* The file system refuses what it promised: without O_DIRECT it works.  `tries` are those of one call, since another thread may
 * have switched it off already. */
static bool falls_back(const weir_work_file *file, int sys_errno, int *tries)
{
	if (sys_errno != EINVAL || !file->direct.works || (*tries)++ == FALL_BACK_TRIES_MAX)
		return false;
	weir_direct_disable(file->file.descriptor);
	return true;
}

/* Reads [offset, offset + bytes), at most BUFFER_BYTES, as the aligned superset into `in`; *data becomes its first byte. */
static int read_extent(const worker *self, const weir_work_file *file, uint64_t offset, uint64_t bytes, unsigned char **data,
		       weir_error *error)
{
	uint64_t alignment = file->direct.offset_bytes, start = offset / alignment * alignment, least = offset - start + bytes;
	uint64_t wanted = (least + alignment - 1) / alignment * alignment, got = 0;
	int tries = 0;

	*data = self->in + (offset - start);
	while (got < least) {
		ssize_t count = pread(file->file.descriptor, self->in + got, wanted - got, (off_t)(start + got));

		if (count < 0 && (errno == EINTR || falls_back(file, errno, &tries)))
			continue;
		if (count < 0)
			return weir_fail(error, weir_code_of_errno(errno), file->file.path, start + got, errno, "cannot read");
		if (count == 0)
			return weir_fail(error, WEIR_EIO, file->file.path, start + got, 0, "the file ends here, too early");
		got += (uint64_t)count;
		if (got < least)
			got = got / alignment * alignment;
	}
	return 0;
}

static int write_extent(const weir_work_file *file, uint64_t offset, const unsigned char *from, uint64_t bytes,
			weir_error *error)
{
	int tries = 0;

	while (bytes) {
		ssize_t count = pwrite(file->file.descriptor, from, bytes, (off_t)offset);

		if (count < 0 && (errno == EINTR || falls_back(file, errno, &tries)))
			continue;
		if (count < 0)
			return weir_fail(error, weir_code_of_errno(errno), file->file.path, offset, errno, "cannot write");
		from += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

/* ---- a job, copied ---- */

/* What has been put together and not written yet: out[0..filled) belongs at `base`. */
typedef struct fill {
	uint64_t base, filled;
} fill;

static int flush_full(worker *self, fill *to, bool last, weir_error *error)
{
	int code;

	if (!to->filled || (!last && to->filled < BUFFER_BYTES))
		return 0;
	code = write_extent(&self->crew->work->output, to->base, self->out, to->filled, error);
	to->base += to->filled;
	to->filled = 0;
	return code;
}

static int fill_zeros(worker *self, fill *to, uint64_t until, weir_error *error)
{
	int code = 0;

	while (!code && to->base + to->filled < until) {
		uint64_t room = BUFFER_BYTES - to->filled, count = until - to->base - to->filled;

		if (count > room)
			count = room;
		memset(self->out + to->filled, 0, count);
		to->filled += count;
		code = flush_full(self, to, false, error);
	}
	return code;
}

static int copy_item(worker *self, const weir_work_item *item, fill *to, weir_error *error)
{
	weir_work *work = self->crew->work;
	uint64_t done = 0;
	unsigned char *data;
	int code = fill_zeros(self, to, item->offset, error);

	while (!code && done < item->bytes) {
		uint64_t room = BUFFER_BYTES - to->filled, count = item->bytes - done;

		if (count > room)
			count = room;
		code = read_extent(self, &work->sources[item->source], item->source_offset + done, count, &data, error);
		if (code)
			return code;
		memcpy(self->out + to->filled, data, count);
		if (work->sums)
			XXH3_64bits_update(self->state, self->out + to->filled, count);
		to->filled += count;
		done += count;
		code = flush_full(self, to, false, error);
	}
	return code;
}

static int copy_job(worker *self, const job *work_job, weir_error *error)
{
	weir_work *work = self->crew->work;
	uint64_t alignment = work->alignment, to = (work_job->to + alignment - 1) / alignment * alignment;
	fill filling = {.base = work_job->from};
	int code = 0;

	for (self->item = work_job->first; self->item < work_job->end && !code; self->item++) {
		XXH3_64bits_reset(self->state);
		code = copy_item(self, &work->items[self->item], &filling, error);
		if (!code && work->sums)
			work->sums[self->item] = XXH3_64bits_digest(self->state);
	}
	if (!code)
		code = fill_zeros(self, &filling, to, error);
	return code ? code : flush_full(self, &filling, true, error);
}

/* ---- a job, checked ---- */

static int check_sum(const worker *self, const char *path, uint64_t offset, weir_error *error)
{
	if (XXH3_64bits_digest(self->state) == self->crew->work->sums[self->item])
		return 0;
	return weir_fail(error, WEIR_ECHECKSUM, path, offset, 0, "the checksum does not match");
}

static int check_source_item(worker *self, const weir_work_item *item, weir_error *error)
{
	weir_work *work = self->crew->work;
	const weir_work_file *source = &work->sources[item->source];
	unsigned char *data;

	XXH3_64bits_reset(self->state);
	for (uint64_t done = 0; done < item->bytes;) {
		uint64_t count = item->bytes - done < BUFFER_BYTES ? item->bytes - done : BUFFER_BYTES;
		int code = read_extent(self, source, item->source_offset + done, count, &data, error);

		if (code)
			return code;
		if (work->sums)
			XXH3_64bits_update(self->state, data, count);
		done += count;
	}
	return work->sums ? check_sum(self, source->file.path, item->source_offset, error) : 0;
}

static int check_source_job(worker *self, const job *work_job, weir_error *error)
{
	const weir_work *work = self->crew->work;
	int code = 0;

	for (self->item = work_job->first; self->item < work_job->end && !code;) {
		if (!work->items[self->item].skip)
			code = check_source_item(self, &work->items[self->item], error);
		if (!code)
			self->item++;
	}
	return code;
}

static int check_zero(const worker *self, const unsigned char *data, uint64_t at, uint64_t count, weir_error *error)
{
	for (uint64_t i = 0; i < count; i++)
		if (data[i])
			return weir_fail(error, WEIR_ECHECKSUM, self->crew->work->output.file.path, at + i, 0,
					 "the padding here must be zero");
	return 0;
}

/* Takes data[0..count), which lies at `at` in the output, through the items of a job from self->item on. */
static int check_stretch(worker *self, const job *work_job, const unsigned char *data, uint64_t at, uint64_t count,
			 weir_error *error)
{
	const weir_work *work = self->crew->work;
	uint64_t end = at + count;
	int code = 0;

	while (at < end && !code) {
		const weir_work_item *item = self->item < work_job->end ? &work->items[self->item] : NULL;
		uint64_t until = item ? item->offset : end, step;

		if (item && at >= item->offset)
			until = item->offset + item->bytes;
		step = (until < end ? until : end) - at;
		if (!item || at < item->offset)
			code = check_zero(self, data, at, step, error);
		else
			XXH3_64bits_update(self->state, data, step);
		data += step;
		at += step;
		if (code || !item || at != item->offset + item->bytes)
			continue;
		code = check_sum(self, work->output.file.path, item->offset, error);
		if (!code)
			self->item++;
		XXH3_64bits_reset(self->state);
	}
	return code;
}

static int check_output_job(worker *self, const job *work_job, weir_error *error)
{
	int code = 0;

	self->item = work_job->first;
	XXH3_64bits_reset(self->state);
	for (uint64_t at = work_job->from; at < work_job->to && !code;) {
		uint64_t count = work_job->to - at < BUFFER_BYTES ? work_job->to - at : BUFFER_BYTES;
		unsigned char *data;

		code = read_extent(self, &self->crew->work->output, at, count, &data, error);
		if (!code)
			code = check_stretch(self, work_job, data, at, count, error);
		at += count;
	}
	return code;
}

/* ---- workers ---- */

static int do_job(worker *self, const job *work_job, weir_error *error)
{
	switch (self->crew->work->mode) {
	case WEIR_WORK_COPY:
		return copy_job(self, work_job, error);
	case WEIR_WORK_CHECK_OUTPUT:
		return check_output_job(self, work_job, error);
	default:
		return check_source_job(self, work_job, error);
	}
}

static uint64_t job_bytes(const weir_work *work, const job *work_job)
{
	uint64_t bytes = 0;

	for (uint64_t i = work_job->first; i < work_job->end; i++)
		bytes += work->items[i].skip ? 0 : work->items[i].bytes;
	return bytes;
}

static void note_result(worker *self, uint64_t index, int code, const weir_error *error)
{
	work_crew *crew = self->crew;

	if (code && (!crew->code || self->item < crew->failed_item)) {
		crew->code = code;
		crew->error = *error;
		crew->failed_item = self->item;
	}
	if (code)
		crew->stop = true;
	else
		crew->bytes_done += job_bytes(crew->work, &crew->jobs[index]);
	crew->done[index] = !code;
}

static void *work_on(void *user)
{
	worker *self = user;
	work_crew *crew = self->crew;

	pthread_mutex_lock(&crew->lock);
	while (!crew->stop && crew->jobs_next < crew->jobs_count) {
		uint64_t index = crew->jobs_next++;
		weir_error error = {0};
		int code;

		pthread_mutex_unlock(&crew->lock);
		code = do_job(self, &crew->jobs[index], &error);
		pthread_mutex_lock(&crew->lock);
		note_result(self, index, code, &error);
		pthread_cond_signal(&crew->news);
	}
	crew->running--;
	pthread_cond_signal(&crew->news);
	pthread_mutex_unlock(&crew->lock);
	return NULL;
}

static int open_worker(worker *self, work_crew *crew)
{
	void *memory;

	self->crew = crew;
	if (weir_memory_map(2 * BUFFER_BYTES + SLACK_BYTES, true, &memory, NULL))
		return WEIR_ENOMEM;
	self->out = memory;
	self->in = self->out + BUFFER_BYTES;
	self->state = XXH3_createState();
	return self->state ? 0 : WEIR_ENOMEM;
}

static void close_worker(worker *self)
{
	weir_memory_unmap(self->out, 2 * BUFFER_BYTES + SLACK_BYTES);
	XXH3_freeState(self->state);
}

/* ---- the caller's side ---- */

static void sleep_a_moment(work_crew *crew)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += PROGRESS_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&crew->news, &crew->lock, &until);
}

static void fail_crew(work_crew *crew, int code, const weir_error *error)
{
	crew->stop = true;
	if (crew->code)
		return;
	crew->code = code;
	crew->error = *error;
}

/* Without the lock, which the workers need: `progress` and `note_done` may take their time. */
static void call_back(work_crew *crew, uint64_t items_done, bool note)
{
	weir_work *work = crew->work;
	uint64_t bytes_done = crew->bytes_done;
	weir_error error = {0};
	int code = 0;

	pthread_mutex_unlock(&crew->lock);
	if (note && work->note_done)
		code = work->note_done(items_done, work->note_user, &error);
	if (!code && work->progress && work->progress(work->stage, bytes_done, crew->bytes_total, work->user))
		code = weir_fail(&error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted");
	pthread_mutex_lock(&crew->lock);
	if (code)
		fail_crew(crew, code, &error);
}

static uint64_t count_done(work_crew *crew)
{
	while (crew->done_prefix < crew->jobs_count && crew->done[crew->done_prefix])
		crew->done_prefix++;
	return crew->done_prefix < crew->jobs_count ? crew->jobs[crew->done_prefix].first : crew->work->items_count;
}

/* Until the last worker has ended. */
static void attend(work_crew *crew)
{
	uint64_t noted = crew->bytes_done, told_ns = 0;

	pthread_mutex_lock(&crew->lock);
	while (crew->running) {
		bool note;

		sleep_a_moment(crew);
		note = crew->work->note_done && crew->bytes_done - noted >= crew->work->note_every_bytes;
		if (!note && weir_clock_ns() - told_ns < PROGRESS_NS)
			continue;
		if (note)
			noted = crew->bytes_done;
		told_ns = weir_clock_ns();
		call_back(crew, count_done(crew), note);
	}
	call_back(crew, count_done(crew), true);
	pthread_mutex_unlock(&crew->lock);
}

/* As many as can be; `reason` is the errno of the first that cannot. */
static uint32_t start_workers(work_crew *crew, worker *workers, uint32_t wanted, int *reason)
{
	sigset_t all, before;
	uint32_t count = 0;

	sigfillset(&all); /* the host's signal handlers run in the host's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	crew->running = wanted;
	while (count < wanted && (*reason = pthread_create(&workers[count].thread, NULL, work_on, &workers[count])) == 0)
		count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_mutex_lock(&crew->lock);
	crew->running -= wanted - count;
	pthread_mutex_unlock(&crew->lock);
	return count;
}

static int run_crew(work_crew *crew, worker *workers, uint32_t wanted, weir_error *error)
{
	uint32_t ready = 0, started;
	int reason = ENOMEM;

	while (ready < wanted && open_worker(&workers[ready], crew) == 0)
		ready++;
	started = ready ? start_workers(crew, workers, ready, &reason) : 0;
	if (started)
		attend(crew);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(workers[i].thread, NULL);
	for (uint32_t i = 0; i < wanted; i++)
		close_worker(&workers[i]);
	if (!started)
		return weir_fail(error, ready ? WEIR_ELIMIT : WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, reason,
				 "cannot start %s", ready ? "a thread" : "work: no memory for its buffers");
	crew->work->failed_item = crew->failed_item;
	if (crew->code && error)
		*error = crew->error;
	return crew->code;
}

int weir_work_run(weir_work *work, weir_error *error)
{
	work_crew crew = {.work = work, .failed_item = work->items_count};
	uint32_t wanted = work->threads ? work->threads : WEIR_WORK_THREADS;
	worker *workers;
	int code;

	wanted = wanted < THREADS_MAX ? wanted : THREADS_MAX;
	workers = calloc(wanted, sizeof *workers);
	pthread_mutex_init(&crew.lock, NULL);
	pthread_cond_init(&crew.news, NULL);
	if (!workers || make_jobs(&crew))
		code = weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the list of work");
	else
		code = run_crew(&crew, workers, wanted, error);
	pthread_cond_destroy(&crew.news);
	pthread_mutex_destroy(&crew.lock);
	free(crew.jobs);
	free(crew.done);
	free(workers);
	return code;
}

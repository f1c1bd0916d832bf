/*
 * pool.c - see pool.h.
 *
 *   start ──► queue (ring, queue_depth long) ──► workers ──► results ──► collect
 *
 * One lock guards both ends; a piece is hundreds of kilobytes, so it is taken some thousand times a second.  All sleeping is on
 * condition variables (futexes).
 */
#include "io/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"

#define STACK_BYTES ((size_t)256 << 10)

struct weir_io_pool {
	weir_io_pool_read read;
	pthread_mutex_t lock;
	pthread_cond_t work; /* a piece was queued, or closing */
	pthread_cond_t news; /* a result came, or a wake */
	weir_io_piece *queue;
	weir_io_result *results;
	uint32_t queue_depth, queue_head, queue_count, results_count;
	uint32_t idle_count; /* workers that sleep */
	bool woken, closing;
	uint32_t workers_count;
	pthread_t workers[WEIR_IO_WORKERS_MAX];
};

static bool take_work(weir_io_pool *pool, weir_io_piece *piece)
{
	pool->idle_count++;
	while (!pool->queue_count && !pool->closing)
		pthread_cond_wait(&pool->work, &pool->lock);
	pool->idle_count--;
	if (!pool->queue_count)
		return false;
	*piece = pool->queue[pool->queue_head];
	pool->queue_head = (pool->queue_head + 1) % pool->queue_depth;
	pool->queue_count--;
	return true;
}

static void *work(void *argument)
{
	weir_io_pool *pool = argument;
	weir_io_piece piece;
	int32_t count;

	pthread_mutex_lock(&pool->lock);
	while (take_work(pool, &piece)) {
		pthread_mutex_unlock(&pool->lock);
		count = pool->read(&piece);
		pthread_mutex_lock(&pool->lock);
		pool->results[pool->results_count++] = (weir_io_result){.piece = piece.index, .count = count};
		pthread_cond_signal(&pool->news);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* The host's signal handlers run in the host's threads, so that its reads are interrupted as it expects, and ours never. */
static void start_workers(weir_io_pool *pool, uint32_t workers_max)
{
	uint32_t wanted = pool->queue_depth < workers_max ? pool->queue_depth : workers_max;
	pthread_attr_t attributes;
	sigset_t all, before;

	if (pthread_attr_init(&attributes) != 0)
		return;
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (pool->workers_count < wanted &&
	       pthread_create(&pool->workers[pool->workers_count], &attributes, work, pool) == 0)
		pool->workers_count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

static void init_locks(weir_io_pool *pool)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&pool->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->news, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int weir_io_pool_open(uint32_t queue_depth, uint32_t workers_max, weir_io_pool_read read, void **state, weir_error *error)
{
	weir_io_pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for I/O threads");
	init_locks(pool);
	pool->read = read;
	pool->queue_depth = queue_depth;
	pool->queue = calloc(queue_depth, sizeof *pool->queue);
	pool->results = calloc(queue_depth, sizeof *pool->results);
	if (!pool->queue || !pool->results) {
		weir_io_pool_close(pool);
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for I/O threads");
	}
	start_workers(pool, workers_max);
	if (!pool->workers_count) {
		weir_io_pool_close(pool);
		return weir_fail(error, WEIR_ELIMIT, NULL, WEIR_ERROR_NO_OFFSET, 0, "cannot start an I/O thread");
	}
	*state = pool;
	return 0;
}

void weir_io_pool_close(void *state)
{
	weir_io_pool *pool = state;
	uint32_t i;

	pthread_mutex_lock(&pool->lock);
	pool->closing = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (i = 0; i < pool->workers_count; i++)
		pthread_join(pool->workers[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->news);
	pthread_mutex_destroy(&pool->lock);
	free(pool->queue);
	free(pool->results);
	free(pool);
}

int weir_io_pool_start(void *state, const weir_io_piece *piece)
{
	weir_io_pool *pool = state;

	pthread_mutex_lock(&pool->lock);
	pool->queue[(pool->queue_head + pool->queue_count) % pool->queue_depth] = *piece;
	pool->queue_count++;
	if (pool->idle_count)
		pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

void weir_io_pool_flush(void *state)
{
	(void)state;
}

uint32_t weir_io_pool_collect(void *state, weir_io_result *results, uint32_t capacity)
{
	weir_io_pool *pool = state;
	uint32_t count;

	pthread_mutex_lock(&pool->lock);
	count = pool->results_count < capacity ? pool->results_count : capacity;
	memcpy(results, pool->results, count * sizeof *results);
	pool->results_count -= count;
	memmove(pool->results, pool->results + count, pool->results_count * sizeof *results);
	pthread_mutex_unlock(&pool->lock);
	return count;
}

static struct timespec deadline_after(uint64_t timeout_us)
{
	struct timespec at;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &at);
	ns = (uint64_t)at.tv_nsec + timeout_us % 1000000u * 1000u;
	at.tv_sec += (time_t)(timeout_us / 1000000u + ns / 1000000000u);
	at.tv_nsec = (long)(ns % 1000000000u);
	return at;
}

void weir_io_pool_wait(void *state, uint64_t timeout_us)
{
	const uint64_t year_us = 31536000ull * 1000000u;
	struct timespec deadline = deadline_after(timeout_us < year_us ? timeout_us : year_us);
	weir_io_pool *pool = state;
	int result = 0;

	pthread_mutex_lock(&pool->lock);
	while (!pool->results_count && !pool->woken && result == 0)
		result = pthread_cond_timedwait(&pool->news, &pool->lock, &deadline);
	pool->woken = false;
	pthread_mutex_unlock(&pool->lock);
}

void weir_io_pool_wake(void *state)
{
	weir_io_pool *pool = state;

	pthread_mutex_lock(&pool->lock);
	pool->woken = true;
	pthread_cond_signal(&pool->news);
	pthread_mutex_unlock(&pool->lock);
}

void weir_io_pool_add_buffer(void *state, void *base, uint64_t bytes)
{
	(void)state;
	(void)base;
	(void)bytes;
}

/* affinity.c - binding compute threads; the processors that the process may use are looked up before the first is bound. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "os/affinity.h"

static pthread_once_t looked_up = PTHREAD_ONCE_INIT;
static cpu_set_t allowed;

static void look_up(void)
{
	CPU_ZERO(&allowed);
	sched_getaffinity(0, sizeof allowed, &allowed);
}

const cpu_set_t *weir_affinity_allowed(void)
{
	pthread_once(&looked_up, look_up);
	return &allowed;
}

/* The n-th processor that is allowed, or CPU_SETSIZE. */
static size_t nth_processor(uint32_t n)
{
	size_t cpu = 0;

	while (cpu < CPU_SETSIZE && !(CPU_ISSET(cpu, &allowed) && n-- == 0))
		cpu++;
	return cpu;
}

void weir_affinity_bind(uint32_t thread, uint32_t threads)
{
	static _Thread_local uint32_t thread_now, threads_now;
	static _Thread_local bool bound;
	cpu_set_t one;
	size_t cpu;

	if (thread == thread_now && threads == threads_now)
		return;
	thread_now = thread;
	threads_now = threads;
	pthread_once(&looked_up, look_up);
	cpu = (uint32_t)CPU_COUNT(&allowed) == threads ? nth_processor(thread) : CPU_SETSIZE;
	if (cpu == CPU_SETSIZE) {
		if (bound)
			sched_setaffinity(0, sizeof allowed, &allowed);
		bound = false;
		return;
	}
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	bound = sched_setaffinity(0, sizeof one, &one) == 0 || bound;
}

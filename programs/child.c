/* child.c - see child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "interrupt.h"
#include "os/memory.h"

#define TICK_MS 50 /* how often a run is looked at */
#define KEPT_MAX ((size_t)64 << 20)
#define READ_BYTES 65536
#define NOT_STARTED 125 /* the exit code of a child that never became the program */

struct running {
	pid_t pid;
	int pipes[CHILD_STREAMS]; /* -1 once closed */
	uint64_t began_ns;
	bool killed;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

void child_catch_interrupt(void)
{
	interrupt_install(on_interrupt);
}

bool child_interrupted(void)
{
	return interrupted;
}

/* ---- in the child, between fork and exec ---- */

static void restore_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		signal(numbers[i], SIG_DFL);
}

/* Its own process group: an interrupt from the terminal comes to the parent alone, which ends the child. */
static _Noreturn void become(const char *const *words, const char *file, const memory_group *group, int ends[CHILD_STREAMS])
{
	static const char no_group[] = "cannot enter its memory cgroup\n", no_program[] = "cannot be started\n";
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	restore_signals();
	dup2(null, STDIN_FILENO);
	dup2(ends[CHILD_OUT], STDOUT_FILENO);
	dup2(ends[CHILD_ERR], STDERR_FILENO);
	dup2(ends[CHILD_EXTRA], 3);
	if (!memory_group_enter(group))
		(void)!write(STDERR_FILENO, no_group, sizeof no_group - 1);
	else if (execvp(file, (char *const *)(uintptr_t)words) < 0)
		(void)!write(STDERR_FILENO, no_program, sizeof no_program - 1);
	_exit(NOT_STARTED);
}

/* ---- in the parent ---- */

static void close_all(int fds[CHILD_STREAMS])
{
	for (int i = 0; i < CHILD_STREAMS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Descriptors above those that the child renumbers its ends to. */
static bool open_pipe(int *reader, int *writer)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	*reader = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
	*writer = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
	close(ends[0]);
	close(ends[1]);
	return *reader >= 0 && *writer >= 0;
}

static int start(const char *const *words, const char *file, const memory_group *group, struct running *run, weir_error *error)
{
	int ends[CHILD_STREAMS] = {-1, -1, -1};
	bool piped = true;

	for (int i = 0; i < CHILD_STREAMS; i++)
		run->pipes[i] = -1;
	for (int i = 0; i < CHILD_STREAMS && piped; i++)
		piped = open_pipe(&run->pipes[i], &ends[i]);
	fflush(NULL);
	run->began_ns = weir_clock_ns();
	run->pid = piped ? fork() : -1;
	if (run->pid == 0)
		become(words, file, group, ends);
	close_all(ends);
	if (run->pid > 0) {
		setpgid(run->pid, run->pid); /* whichever of the two comes first */
		return 0;
	}
	close_all(run->pipes);
	return weir_fail(error, weir_code_of_errno(errno), NULL, WEIR_ERROR_NO_OFFSET, errno, "no process could be started");
}

/* Keeps what is read; what is beyond the limit, or beyond memory, is read and dropped. */
static void keep(child_text *kept, const char *bytes, size_t count)
{
	char *larger;

	if (kept->bytes + count + 1 > kept->capacity && kept->bytes + count < KEPT_MAX) {
		larger = realloc(kept->text, 2 * (kept->bytes + count + 1));
		if (!larger)
			return;
		kept->text = larger;
		kept->capacity = 2 * (kept->bytes + count + 1);
	}
	if (kept->bytes + count + 1 > kept->capacity)
		return;
	memcpy(kept->text + kept->bytes, bytes, count);
	kept->bytes += count;
	kept->text[kept->bytes] = '\0';
}

static void take(struct running *run, int stream, child_text *kept)
{
	char buffer[READ_BYTES];
	ssize_t count = read(run->pipes[stream], buffer, sizeof buffer);

	if (count > 0)
		keep(kept, buffer, (size_t)count);
	if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) {
		close(run->pipes[stream]);
		run->pipes[stream] = -1;
	}
}

/* Waits for output or the next tick; false once every stream has ended. */
static bool wait_for_output(struct running *run, child *result)
{
	struct pollfd polled[CHILD_STREAMS];
	bool any = false;

	for (int i = 0; i < CHILD_STREAMS; i++) {
		polled[i] = (struct pollfd){.fd = run->pipes[i], .events = POLLIN};
		any = any || run->pipes[i] >= 0;
	}
	if (!any || poll(polled, CHILD_STREAMS, TICK_MS) <= 0)
		return any;
	for (int i = 0; i < CHILD_STREAMS; i++)
		if (run->pipes[i] >= 0 && polled[i].revents)
			take(run, i, &result->streams[i]);
	return true;
}

static void kill_group(struct running *run)
{
	if (!run->killed && kill(-run->pid, SIGKILL) < 0)
		kill(run->pid, SIGKILL);
	run->killed = true;
}

static bool is_late(const struct running *run, double timeout_seconds)
{
	return timeout_seconds > 0 && (double)(weir_clock_ns() - run->began_ns) > timeout_seconds * 1e9;
}

static void watch(struct running *run, memory_group *group, double timeout_seconds, child *result)
{
	while (wait_for_output(run, result)) {
		memory_group_read(group, run->pid);
		if (!result->timed_out && is_late(run, timeout_seconds))
			result->timed_out = true;
		if (interrupted || result->timed_out)
			kill_group(run);
	}
}

static void reap(const struct running *run, child *result)
{
	int status = 0;

	while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
		;
	result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int child_run(const char *const *words, memory_group *group, double timeout_seconds, child *result, weir_error *error)
{
	const char *all[CHILD_WORDS_MAX + MEMORY_GROUP_WORDS_MAX + 2];
	char self[PATH_MAX] = "", text[2][48];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	int prefix = memory_group_words(group, all, text), code;
	int count = prefix;
	struct running run = {0};

	*result = (child){.exit_code = -1};
	if (length <= 0)
		return weir_fail(error, WEIR_EIO, "/proc/self/exe", WEIR_ERROR_NO_OFFSET, errno, "cannot be read");
	all[count++] = self;
	while (*words && count < CHILD_WORDS_MAX + MEMORY_GROUP_WORDS_MAX)
		all[count++] = *words++;
	all[count] = NULL;
	if (!interrupted) {
		code = start(all, all[0], group, &run, error);
		if (code < 0)
			return code;
		watch(&run, group, timeout_seconds, result);
		memory_group_read(group, run.pid);
		reap(&run, result);
	}
	if (interrupted)
		return weir_fail(error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted");
	return 0;
}

void child_free(child *result)
{
	for (int i = 0; i < CHILD_STREAMS; i++) {
		free(result->streams[i].text);
		result->streams[i] = (child_text){0};
	}
}

/* ---- why ---- */

/* The last line that holds anything. */
static const char *last_line(const char *text, size_t *bytes)
{
	size_t end = strlen(text), start;

	while (end && (text[end - 1] == '\n' || text[end - 1] == ' '))
		end--;
	for (start = end; start && text[start - 1] != '\n';)
		start--;
	*bytes = end - start;
	return text + start;
}

/* The line without the "weir COMMAND: " that it opens with: whoever shows it puts a name of its own before it. */
static const char *without_name(const char *line, size_t *bytes)
{
	size_t at = 5;

	if (*bytes < at || strncmp(line, "weir ", at) != 0)
		return line;
	while (at < *bytes && line[at] >= 'a' && line[at] <= 'z')
		at++;
	if (at + 2 >= *bytes || line[at] != ':' || line[at + 1] != ' ')
		return line;
	*bytes -= at + 2;
	return line + at + 2;
}

void child_why(const child *result, char why[CHILD_WHY_BYTES])
{
	const char *err = result->streams[CHILD_ERR].text, *line;
	size_t bytes = 0, used = 0;

	line = err ? without_name(last_line(err, &bytes), &bytes) : "";
	if (result->timed_out)
		snprintf(why, CHILD_WHY_BYTES, "it did not end in time");
	else if (result->signal)
		used = (size_t)snprintf(why, CHILD_WHY_BYTES, "ended by signal %d (%s)%s", result->signal,
					strsignal(result->signal), bytes ? ": " : "");
	else if (!bytes)
		snprintf(why, CHILD_WHY_BYTES, "exit code %d", result->exit_code);
	if (!result->timed_out && bytes)
		weir_text_escape(line, bytes, why + used, CHILD_WHY_BYTES - used);
}

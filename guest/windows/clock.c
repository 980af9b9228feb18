/* The clock of Windows programs, which makes waiting short. It comes before the C library's in every program of Wine and in its server.
 *
 * Sleep() is a select() on nothing: it takes a tenth of a second and a twentieth of the rest, one second at most, like
 * crates/weir-guest/src/sleep.rs. All other waits with an end (for an object, for a timer, for a message) end by the clock of Wine's
 * server: when nothing has happened for a tenth of a second and nobody has anything to do, that clock runs sixty times as fast.
 * What was left out is added to everybody's clock, so that a program which compares clocks before and after finds what it expects.
 * How long a Sleep() was to be is a line of the trace. No library is used: the same file serves 64 and 32 bits. */
typedef unsigned long word;
/* Both worlds count time in 64 bits; the 32-bit one has calls of its own for that. */
struct timeval { long long sec, usec; };
struct timespec { long long sec, nsec; };

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, OPEN = 2, CLOSE = 3, MAP = 9, PSELECT = 270, CLOCK = 228, EPOLL = 281 };
#define SELECT select
#define CLOCK_GETTIME clock_gettime
#define GETTIMEOFDAY gettimeofday
static long ask(long number, word a, word b, word c, word d, word e, word f)
{
    long result;
    register word r10 __asm__("r10") = d;
    register word r8 __asm__("r8") = e;
    register word r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
#else
enum { READ = 3, WRITE = 4, OPEN = 5, CLOSE = 6, MAP = 192, PSELECT = 413, CLOCK = 403 };
#define SELECT __select64
#define CLOCK_GETTIME __clock_gettime64
#define GETTIMEOFDAY __gettimeofday64
/* The sixth argument is in a register that the compiler keeps for itself: it is put aside, and none is given. */
static long ask(long number, word a, word b, word c, word d, word e, word f)
{
    long result;
    (void)f;
    __asm__ volatile("push %%ebp; xor %%ebp, %%ebp; int $0x80; pop %%ebp"
                     : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
    return result;
}
#endif

/* How many milliseconds have been left out, and whether a sample runs, in a page that all share; a page of one's own where there is none. */
static volatile unsigned own[2], *left_out = own;

__attribute__((constructor)) static void share(void)
{
    long file = ask(OPEN, (word)"/run/clock", 2, 0, 0, 0, 0), place;
    if (file < 0) return;
    place = ask(MAP, 0, 4096, 3, 1, file, 0);
    if ((word)place < (word)-4095) left_out = (volatile unsigned *)place;
    ask(CLOSE, file, 0, 0, 0, 0, 0);
}

static void leave_out(unsigned milliseconds) { __atomic_fetch_add(left_out, milliseconds, __ATOMIC_RELAXED); }
static int has_sample(void) { return left_out[1] != 0; }

static void shift(long long *seconds, long long *parts, long parts_of_ms)
{
    unsigned more = *left_out;
    *seconds += more / 1000;
    *parts += (long long)(more % 1000) * parts_of_ms;
    if (*parts >= 1000LL * parts_of_ms) *parts -= 1000LL * parts_of_ms, ++*seconds;
}

int CLOCK_GETTIME(int which, struct timespec *time)
{
    long result = ask(CLOCK, which, (word)time, 0, 0, 0, 0);
    if (result < 0) return -1;
    /* What a process or thread has worked is its own: those are 2 and 3, and below 0. */
    if (which == 0 || which == 1 || which >= 4) shift(&time->sec, &time->nsec, 1000000);
    return 0;
}

int GETTIMEOFDAY(struct timeval *time, void *zone)
{
    struct timespec now;
    (void)zone;
    if (CLOCK_GETTIME(0, &now)) return -1;
    time->sec = now.sec;
    /* Divided in 32 bits: there is no library that could do more. */
    time->usec = (unsigned)now.nsec / 1000;
    return 0;
}

/* Milliseconds of everybody's clock; they begin again after some weeks. */
static unsigned now_ms(void)
{
    struct timespec now = {0};
    CLOCK_GETTIME(1, &now);
    return (unsigned)now.sec * 1000 + (unsigned)now.nsec / 1000000;
}

static char *number(char *at, word value)
{
    char digits[24];
    int count = 0;
    do digits[count++] = '0' + value % 10; while (value /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

static void tell(word seconds)
{
    char line[64] = "weir:sleeps ", *end = number(line + 12, seconds);
    *end++ = '\n';
    ask(WRITE, 2, (word)line, end - line, 0, 0, 0);
}

/* How long it may be, in milliseconds, for what is wanted. */
static unsigned rest_of(unsigned wanted)
{
    unsigned rest = 100 + wanted / 20;
    if (rest > 1000) rest = 1000;
    return rest < wanted ? rest : wanted;
}

int SELECT(int count, void *reads, void *writes, void *others, struct timeval *time)
{
    struct timespec span;
    unsigned end = 0, is_short = 0;
    long result;
    if (time) {
        span.sec = time->sec;
        span.nsec = time->usec * 1000;
        if (!count && !reads && !writes && !others && time->sec >= 0) {
            /* Longer than three weeks is three weeks: the count fits in 32 bits. */
            unsigned seconds = time->sec > 2000000 ? 2000000 : (unsigned)time->sec;
            unsigned wanted = seconds * 1000 + (unsigned)time->usec / 1000, rest = rest_of(wanted);
            if (rest < wanted) {
                if (seconds) tell(seconds);
                span.sec = rest / 1000;
                span.nsec = (long long)(rest % 1000) * 1000000;
                is_short = 1;
                end = now_ms() + wanted;
            }
        }
    }
    result = ask(PSELECT, count, (word)reads, (word)writes, (word)others, (word)(time ? &span : 0), 0);
    if (is_short && result == 0) {
        /* Whoever slept beside it may have moved the clock already. */
        unsigned left = end - now_ms();
        if (left < 0x80000000u) leave_out(left);
    }
    /* Wine asks again after an error, and looks at nothing else. */
    return result < 0 ? -1 : (int)result;
}

#if defined(__x86_64__)
/* Wine's server looks at its clock every sixteen milliseconds or more often. So many looks in a row at which nothing has happened are a tenth
 * of a second. */
enum { LOOKS = 6, FAST = 60 };

/* Whether nobody but us wants a processor or waits for the disk. */
static int is_idle(void)
{
    static char text[4096];
    long file = ask(OPEN, (word)"/proc/stat", 0, 0, 0, 0, 0), length, at;
    int running = -1, blocked = -1;
    if (file < 0) return 0;
    /* What is wanted is at the end, behind a line that may be long. */
    while ((length = ask(READ, file, (word)text, sizeof text - 1, 0, 0, 0)) > 0)
        for (at = 0; at + 15 < length; at++) {
            if (text[at] != 'p' || text[at + 1] != 'r' || text[at + 2] != 'o' || text[at + 3] != 'c' || text[at + 4] != 's') continue;
            /* procs_running N and procs_blocked N */
            if (text[at + 6] == 'r') running = text[at + 14] - '0' + (text[at + 15] >= '0' ? 10 : 0);
            if (text[at + 6] == 'b') blocked = text[at + 14] - '0' + (text[at + 15] >= '0' ? 10 : 0);
        }
    ask(CLOSE, file, 0, 0, 0, 0, 0);
    return running == 1 && blocked == 0;
}

static int watched_wait(int poll, void *events, int most, int time_ms)
{
    static int quiet;
    unsigned before = now_ms(), spent;
    long result = ask(EPOLL, poll, (word)events, most, time_ms, 0, 8);
    if (result != 0 || time_ms <= 0 || !has_sample()) {
        quiet = 0;
        return result < 0 ? -1 : (int)result;
    }
    spent = now_ms() - before;
    if (++quiet < LOOKS || spent > 1000) return 0;
    if (!is_idle()) quiet = 0;
    else leave_out(spent * (FAST - 1));
    return 0;
}

int epoll_wait(int poll, void *events, int most, int time_ms) { return watched_wait(poll, events, most, time_ms); }
int epoll_pwait(int poll, void *events, int most, int time_ms, const void *signals)
{
    (void)signals;
    return watched_wait(poll, events, most, time_ms);
}
#endif

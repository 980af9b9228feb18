/* Sleeps of Windows programs are made short: Wine's Sleep() is a select() on nothing, and this one comes before the C library's.
 * Like crates/weir-guest/src/sleep.rs: a tenth of a second and a twentieth of the rest, one second at most; of two sleeps the longer one stays
 * the longer, up to twenty seconds. What was asked for is a line of the trace. No library is used: the same file serves 64 and 32 bits. */
typedef unsigned long word;
/* Both worlds count time in 64 bits; the 32-bit one has calls of its own for that. */
struct timeval { long long sec, usec; };
struct timespec { long long sec, nsec; };

#if defined(__x86_64__)
enum { WRITE = 1, PSELECT = 270 };
#define SELECT select
static long ask(long number, word a, word b, word c, word d, word e)
{
    long result;
    register word r10 __asm__("r10") = d;
    register word r8 __asm__("r8") = e;
    register word r9 __asm__("r9") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
#else
enum { WRITE = 4, PSELECT = 413 };
#define SELECT __select64
/* The sixth argument is in a register that the compiler keeps for itself: it is put aside, and none is given. */
static long ask(long number, word a, word b, word c, word d, word e)
{
    long result;
    __asm__ volatile("push %%ebp; xor %%ebp, %%ebp; int $0x80; pop %%ebp"
                     : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
    return result;
}
#endif

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
    ask(WRITE, 2, (word)line, end - line, 0, 0);
}

/* How long it may be, in milliseconds, for what is wanted. */
static word rest_of(word wanted)
{
    word rest = 100 + wanted / 20;
    if (rest > 1000) rest = 1000;
    return rest < wanted ? rest : wanted;
}

int SELECT(int count, void *reads, void *writes, void *others, struct timeval *time)
{
    struct timespec span;
    long result;
    if (time) {
        span.sec = time->sec;
        span.nsec = time->usec * 1000;
        if (!count && !reads && !writes && !others && time->sec >= 0) {
            /* Longer than three weeks is three weeks: the count fits in 32 bits. */
            word seconds = time->sec > 2000000 ? 2000000 : (word)time->sec;
            word wanted = seconds * 1000 + (word)time->usec / 1000, rest = rest_of(wanted);
            if (rest < wanted) {
                if (seconds) tell(seconds);
                span.sec = rest / 1000;
                span.nsec = (long long)(rest % 1000) * 1000000;
            }
        }
    }
    result = ask(PSELECT, count, (word)reads, (word)writes, (word)others, (word)(time ? &span : 0));
    /* Wine asks again after an error, and looks at nothing else. */
    return result < 0 ? -1 : (int)result;
}

/* A program that Windows has and Wine has not: it says who it is and ends well. What it was asked for is seen from outside. */
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
    const char *name = count > 0 ? strrchr(words[0], '\\') : 0;
    printf("%s: done\n", name ? name + 1 : "done");
    return 0;
}

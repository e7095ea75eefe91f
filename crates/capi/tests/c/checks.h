/* What the programs that call every function check by. Include it after the header of the calls. */
#ifndef CHECKS_H
#define CHECKS_H

#include <stdio.h>

static int failures = 0;

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
            failures++;                                                                  \
        }                                                                                \
    } while (0)

/* The call must answer `expected`, with a text if and only if `has_text`; `why` goes back. */
#define ANSWERS(expected, has_text, call)                                                \
    do {                                                                                 \
        char *why = (char *)"not set by the call";                                       \
        int answer_ = (int)(call);                                                       \
        if (answer_ != (int)(expected) || (why != NULL) != (has_text)) {                 \
            fprintf(stderr, "%s:%d: %d and not %d (%s): %s\n", __FILE__, __LINE__,       \
                    answer_, (int)(expected), why ? why : "no text", #call);             \
            failures++;                                                                  \
        }                                                                                \
        thermocline_free(why);                                                           \
    } while (0)

#define OK(call) ANSWERS(THERMOCLINE_OK, 0, call)
#define NOT_FOUND(call) ANSWERS(THERMOCLINE_NOT_FOUND, 0, call)
#define INVALID(call) ANSWERS(THERMOCLINE_INVALID, 1, call)

#endif

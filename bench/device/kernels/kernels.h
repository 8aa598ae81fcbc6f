/* What the files of the kernels share: see the heads of the files. */
#include <stddef.h>

/* now is a clock in seconds. */
double now(void);
/* fail ends the program for what the system refused, wrong for a result that cannot be. */
__attribute__((noreturn)) void fail(const char *what);
__attribute__((noreturn)) void wrong(const char *what);
/* whole reads, or writes, exactly n bytes, or ends the program. */
void whole(int fd, char *b, size_t n, int out);

/* each prints what one of n things takes that took t seconds, in a unit of which scale are a second. */
void each(const char *unit, double t, long n, double scale);

int system_main(const char *what, int n, char **a, long *v);
void lavamd(long boxes, long threads);
void everything(const char *dir);
/* indices runs one of them for a time, in ms, or gives 0 where there is none of the name. */
int indices(const char *which, long ms);
void serve(void);
void net(const char *kind, const char *host, int port, long size, long ms);

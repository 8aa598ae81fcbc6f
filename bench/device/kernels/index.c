/*
 * Three indices as nbench has them (BYTEmark, table 1 of the paper 001), which is not in Debian: each the geometric mean of what two of its
 * tests do in a second, written anew. They are to be compared with each other, not with nbench's own figures.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static unsigned rnd(unsigned *s)
{
	return *s = *s * 1664525u + 1013904223u;
}

/* ---- integer: heap sort, and multiplication modulo 2^16 + 1 as IDEA has it ---- */

enum { NUMBERS = 8111, BLOCK = 4000 };

static void sift(int *a, int i, int n)
{
	for (int k; (k = 2 * i + 1) < n; i = k) {
		int t;

		if (k + 1 < n && a[k + 1] > a[k])
			k++;
		if (a[i] >= a[k])
			return;
		t = a[i], a[i] = a[k], a[k] = t;
	}
}

static void numeric(void)
{
	static int a[NUMBERS];
	unsigned s = 13;

	for (int i = 0; i < NUMBERS; i++)
		a[i] = (int)(rnd(&s) >> 1);
	for (int i = NUMBERS / 2; i-- > 0;)
		sift(a, i, NUMBERS);
	for (int n = NUMBERS; n-- > 1;) {
		int t = a[0];

		a[0] = a[n], a[n] = t;
		sift(a, 0, n);
	}
	for (int i = 1; i < NUMBERS; i++)
		if (a[i - 1] > a[i])
			wrong("index: numbers are not sorted");
}

static unsigned times(unsigned a, unsigned b)
{
	if (!a)
		return (65537 - b) & 0xffff;
	if (!b)
		return (65537 - a) & 0xffff;
	a *= b;
	b = (a & 0xffff) - (a >> 16);
	return (b + (b >> 31)) & 0xffff;
}

/* Whoever multiplies with a key, and then with its inverse, has what was before. */
static void cipher(void)
{
	unsigned s = 7;

	for (int i = 0; i < BLOCK; i++) {
		unsigned text = rnd(&s) >> 16, key = (rnd(&s) >> 16) | 1, inverse = 1, power = key, coded;

		for (unsigned e = 65535; e; e >>= 1, power = times(power, power))
			if (e & 1)
				inverse = times(inverse, power);
		coded = times(text, key);
		if (times(coded, inverse) != text)
			wrong("index: what was deciphered");
	}
}

/* ---- memory: strings moved while they are sorted, and a map of bits ---- */

enum { STRINGS = 400, BITS = 1 << 18 };

static void strings(void)
{
	static char text[STRINGS * 80], *at[STRINGS];
	char *end = text;
	unsigned s = 17;

	for (int i = 0; i < STRINGS; i++) {
		int n = 4 + (rnd(&s) >> 24) % 76;

		at[i] = end;
		for (int k = 0; k < n - 1; k++)
			*end++ = 'a' + (rnd(&s) >> 24) % 26;
		*end++ = 0;
	}
	/* The strings themselves are put in order, by moving all that lies between. */
	for (int i = 1; i < STRINGS; i++) {
		int k = 0, n;
		char one[80];

		while (k < i && strcmp(at[k], at[i]) <= 0)
			k++;
		if (k == i)
			continue;
		n = strlen(at[i]) + 1;
		memcpy(one, at[i], n);
		memmove(at[k] + n, at[k], at[i] - at[k]);
		memcpy(at[k], one, n);
		for (int j = i; j > k; j--)
			at[j] = at[j - 1] + n;
	}
	for (int i = 1; i < STRINGS; i++)
		if (strcmp(at[i - 1], at[i]) > 0)
			wrong("index: strings are not sorted");
}

static void bitfield(void)
{
	static unsigned map[BITS / 32];
	unsigned s = 23;
	long set = 0;

	memset(map, 0, sizeof map);
	for (int i = 0; i < 2000; i++) {
		unsigned from = rnd(&s) >> 14, n = 1 + (rnd(&s) >> 24);

		for (unsigned b = from; b < from + n && b < BITS; b++) {
			set += map[b / 32] >> (b % 32) & 1 ? -1 : 1;
			map[b / 32] ^= 1u << (b % 32);
		}
	}
	for (int i = 0; i < BITS; i++)
		set -= map[i / 32] >> (i % 32) & 1;
	if (set)
		wrong("index: bits that are set");
}

/* ---- floating: Fourier coefficients of (x+1)^x on 0 to 2, and equations ---- */

static double coefficient(int k)
{
	double sum = 0;

	for (int i = 0; i <= 200; i++) {
		double x = i / 100., v = pow(x + 1, x) * cos(k * M_PI * x);

		sum += i == 0 || i == 200 ? v / 2 : v;
	}
	return sum / 100;
}

static void fourier(void)
{
	double sum = 0;

	for (int k = 0; k < 20; k++)
		sum += coefficient(k);
	if (fabs(coefficient(0) / 2 - 2.88198433500547) > 1e-9 || fabs(coefficient(1) - 1.13416799712848) > 1e-9 || sum < 0)
		wrong("index: a coefficient");
}

enum { ORDER = 60 };

static void equations(void)
{
	static double a[ORDER][ORDER], kept[ORDER][ORDER], x[ORDER];
	unsigned s = 29;

	for (int i = 0; i < ORDER; i++) {
		for (int k = 0; k < ORDER; k++)
			kept[i][k] = a[i][k] = rnd(&s) / 4294967296. + (i == k ? ORDER : 0);
		x[i] = i + 1;
	}
	for (int c = 0; c < ORDER; c++)
		for (int i = c + 1; i < ORDER; i++) {
			double f = a[i][c] / a[c][c];

			for (int k = c; k < ORDER; k++)
				a[i][k] -= f * a[c][k];
			x[i] -= f * x[c];
		}
	for (int i = ORDER; i-- > 0;) {
		for (int k = i + 1; k < ORDER; k++)
			x[i] -= a[i][k] * x[k];
		x[i] /= a[i][i];
	}
	for (int i = 0; i < ORDER; i++) {
		double b = 0;

		for (int k = 0; k < ORDER; k++)
			b += kept[i][k] * x[k];
		if (fabs(b - (i + 1)) > 1e-8)
			wrong("index: what solves the equations");
	}
}

static double rate(void (*f)(void), double seconds)
{
	double t = now(), gone;
	long n = 0;

	do {
		f();
		n++;
	} while ((gone = now() - t) < seconds);
	return n / gone;
}

int indices(const char *which, long ms)
{
	static const struct {
		const char *name;
		void (*f[2])(void);
	} all[] = {{"integer", {numeric, cipher}}, {"memory", {strings, bitfield}}, {"floating", {fourier, equations}}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(which, all[i].name)) {
			printf("index %.6g\n", sqrt(rate(all[i].f[0], ms / 2e3) * rate(all[i].f[1], ms / 2e3)));
			return 1;
		}
	return 0;
}

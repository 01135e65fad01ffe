#include "data/image/text.h"

#include <string.h>

enum { COLUMNS = 5, FIRST = ' ', LAST = '~' };

/* The characters from FIRST to LAST: rows from top to bottom, the leftmost pixel in bit 4. */
static const uint8_t font[LAST - FIRST + 1][CT_TEXT_HEIGHT] = {
	{0, 0, 0, 0, 0, 0, 0},        {4, 4, 4, 4, 4, 0, 4},        {10, 10, 10, 0, 0, 0, 0},
	{10, 10, 31, 10, 31, 10, 10}, {4, 15, 20, 14, 5, 30, 4},    {24, 25, 2, 4, 8, 19, 3},
	{12, 18, 20, 8, 21, 18, 13},  {4, 4, 8, 0, 0, 0, 0},        {2, 4, 8, 8, 8, 4, 2},
	{8, 4, 2, 2, 2, 4, 8},        {0, 4, 21, 14, 21, 4, 0},     {0, 4, 4, 31, 4, 4, 0},
	{0, 0, 0, 0, 12, 4, 8},       {0, 0, 0, 14, 0, 0, 0},       {0, 0, 0, 0, 0, 12, 12},
	{1, 1, 2, 4, 8, 16, 16},      {14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},
	{14, 17, 1, 6, 8, 16, 31},    {30, 1, 1, 14, 1, 1, 30},     {2, 6, 10, 18, 31, 2, 2},
	{31, 16, 30, 1, 1, 17, 14},   {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},
	{14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12},   {0, 12, 12, 0, 12, 12, 0},
	{0, 12, 12, 0, 12, 4, 8},     {2, 4, 8, 16, 8, 4, 2},       {0, 0, 31, 0, 31, 0, 0},
	{8, 4, 2, 1, 2, 4, 8},        {14, 17, 1, 2, 4, 0, 4},      {14, 17, 1, 13, 21, 21, 14},
	{14, 17, 17, 31, 17, 17, 17}, {30, 17, 17, 30, 17, 17, 30}, {14, 17, 16, 16, 16, 17, 14},
	{30, 17, 17, 17, 17, 17, 30}, {31, 16, 16, 30, 16, 16, 31}, {31, 16, 16, 30, 16, 16, 16},
	{14, 17, 16, 23, 17, 17, 15}, {17, 17, 17, 31, 17, 17, 17}, {14, 4, 4, 4, 4, 4, 14},
	{7, 2, 2, 2, 2, 18, 12},      {17, 18, 20, 24, 20, 18, 17}, {16, 16, 16, 16, 16, 16, 31},
	{17, 27, 21, 21, 17, 17, 17}, {17, 25, 21, 19, 17, 17, 17}, {14, 17, 17, 17, 17, 17, 14},
	{30, 17, 17, 30, 16, 16, 16}, {14, 17, 17, 17, 21, 18, 13}, {30, 17, 17, 30, 20, 18, 17},
	{15, 16, 16, 14, 1, 1, 30},   {31, 4, 4, 4, 4, 4, 4},       {17, 17, 17, 17, 17, 17, 14},
	{17, 17, 17, 17, 17, 10, 4},  {17, 17, 17, 21, 21, 27, 17}, {17, 17, 10, 4, 10, 17, 17},
	{17, 17, 10, 4, 4, 4, 4},     {31, 1, 2, 4, 8, 16, 31},     {14, 8, 8, 8, 8, 8, 14},
	{16, 16, 8, 4, 2, 1, 1},      {14, 2, 2, 2, 2, 2, 14},      {4, 10, 17, 0, 0, 0, 0},
	{0, 0, 0, 0, 0, 0, 31},       {8, 4, 2, 0, 0, 0, 0},        {0, 0, 14, 1, 15, 17, 15},
	{16, 16, 30, 17, 17, 17, 30}, {0, 0, 14, 16, 16, 17, 14},   {1, 1, 15, 17, 17, 17, 15},
	{0, 0, 14, 17, 31, 16, 14},   {6, 9, 8, 28, 8, 8, 8},       {0, 15, 17, 17, 15, 1, 14},
	{16, 16, 30, 17, 17, 17, 17}, {4, 0, 12, 4, 4, 4, 14},      {2, 0, 6, 2, 2, 18, 12},
	{16, 16, 18, 20, 24, 20, 18}, {12, 4, 4, 4, 4, 4, 14},      {0, 0, 26, 21, 21, 21, 21},
	{0, 0, 30, 17, 17, 17, 17},   {0, 0, 14, 17, 17, 17, 14},   {0, 30, 17, 17, 30, 16, 16},
	{0, 15, 17, 17, 15, 1, 1},    {0, 0, 22, 25, 16, 16, 16},   {0, 0, 15, 16, 14, 1, 30},
	{8, 8, 28, 8, 8, 9, 6},       {0, 0, 17, 17, 17, 19, 13},   {0, 0, 17, 17, 17, 10, 4},
	{0, 0, 17, 17, 21, 21, 10},   {0, 0, 17, 10, 4, 10, 17},    {0, 17, 17, 17, 15, 1, 14},
	{0, 0, 31, 2, 4, 8, 31},      {2, 4, 4, 8, 4, 4, 2},        {4, 4, 4, 4, 4, 4, 4},
	{8, 4, 4, 2, 4, 4, 8},        {0, 0, 8, 21, 2, 0, 0},
};

static const uint8_t box[CT_TEXT_HEIGHT] = {31, 17, 17, 17, 17, 17, 31};

/* U+00C0 to U+00FF without accents. */
static const char latin[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty";

static size_t character_bytes(const char *p)
{
	size_t n = 1;

	while (((unsigned char)p[0] & 0x80) && ((unsigned char)p[n] & 0xc0) == 0x80)
		n++;
	return n;
}

/* Returns the ASCII character to draw for the character p [n], or 0. */
static char to_ascii(const char *p, size_t n)
{
	const unsigned char *u = (const unsigned char *)p;

	if (n == 1)
		return p[0] >= FIRST && p[0] <= LAST ? p[0] : 0;
	return n == 2 && u[0] == 0xc3 ? latin[u[1] & 0x3f] : 0;
}

int ct_text_length(const char *text)
{
	int n = 0;

	for (; *text; text += character_bytes(text))
		n++;
	return n;
}

static void draw_square(const struct ct_rgb *image, int x0, int y0, int dot, const uint8_t color[3])
{
	for (int y = y0 < 0 ? 0 : y0; y < y0 + dot && y < image->h; y++) {
		for (int x = x0 < 0 ? 0 : x0; x < x0 + dot && x < image->w; x++)
			memcpy(image->pixels + ((size_t)y * (size_t)image->w + (size_t)x) * 3, color, 3);
	}
}

void ct_text_draw(const struct ct_rgb *image, int x, int y, int dot, const uint8_t color[3], const char *text)
{
	for (size_t n; *text; text += n, x += CT_TEXT_WIDTH * dot) {
		n = character_bytes(text);
		const char c = to_ascii(text, n);
		const uint8_t *rows = c ? font[c - FIRST] : box;
		const int below = c && strchr("gpqy", c) ? dot : 0; /* the baseline */

		for (int k = 0; k < COLUMNS * CT_TEXT_HEIGHT; k++) {
			if (rows[k / COLUMNS] >> (COLUMNS - 1 - k % COLUMNS) & 1)
				draw_square(image, x + k % COLUMNS * dot, y + below + k / COLUMNS * dot, dot, color);
		}
	}
}

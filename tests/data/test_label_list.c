/* Lists of labels in CSV files: the format, the columns, and image directories that use them. */
#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/files/csv.h"
#include "data/files/label_list.h"

/* Reads all records as "a|b" lines. */
static char *records_of(const char *csv)
{
	char *text = ct_strdup(csv);
	struct ct_str out = {0};
	struct ct_csv r;

	assert_ok(ct_csv_init(&r, text, strlen(text), "x.csv"));
	for (;;) {
		assert_ok(ct_csv_next(&r));
		if (r.n == 0)
			break;
		ct_str_addf(&out, "%u:", r.line);
		for (size_t i = 0; i < r.n; i++)
			ct_str_addf(&out, "%s%s", i ? "|" : "", r.fields[i]);
		ct_str_add(&out, "\n");
	}
	ct_csv_release(&r);
	ct_free(text);
	assert_ok(ct_str_status(&out));
	return out.s;
}

static void expect_records(const char *csv, const char *want)
{
	char *got = records_of(csv);

	assert_string_equal(got, want);
	ct_free(got);
}

static void test_csv(void **state)
{
	(void)state;
	expect_records("a,b\nc,\"d\"\n", "1:a|b\n2:c|d\n");
	expect_records("\xef\xbb\xbf"
		       "a,b\r\n\r\nc,d",
		       "1:a|b\n3:c|d\n");
	expect_records("a\tb c\n d,e \t\"f\tg\"\n", "1:a|b c\n2:d,e|f\tg\n");
	expect_records("a;b\n1,5;2\n", "1:a|b\n2:1,5|2\n");
	expect_records("\n\r\n\"x;y;z\",b\r\"say \"\"hi\"\"\" , \"two\nlines\"\rlast,\n",
		       "3:x;y;z|b\n4:say \"hi\"|two\nlines\n6:last|\n");
	expect_records("a,b\n,\n5\" disk,c\n", "1:a|b\n2:|\n3:5\" disk|c\n");
}

static void expect_bad(const char *csv, const struct ct_label_columns *columns, const char *says, const char *hints)
{
	static const struct ct_label_columns usual = {0};
	struct ct_label_list l;
	char *text = ct_strdup(csv);

	assert_int_equal(ct_label_list_parse(text, strlen(text), "x.csv", columns ? columns : &usual, &l), CT_DATA);
	if (!strstr(ct_error_message(), says) || !strstr(ct_error_hint_text(), hints))
		print_error("%s; %s\n", ct_error_message(), ct_error_hint_text());
	assert_non_null(strstr(ct_error_message(), says));
	assert_non_null(strstr(ct_error_hint_text(), hints));
	ct_error_clear();
}

static void test_bad_lists(void **state)
{
	const struct ct_label_columns breed = {.label = "breeds"}, same = {.image = "id", .label = "id"};

	(void)state;
	expect_bad("", NULL, "x.csv is empty", "");
	expect_bad("image,label\n\n", NULL, "but no labels", "");
	expect_bad("image,label\na.jpg,\"cat\n", NULL, "x.csv:2: a quoted field has no closing quote",
		   "\"\" is a quote");
	expect_bad("image,label\n\"a.jpg\"x,cat\n", NULL, "x.csv:2: a quoted field is followed by", "");
	expect_bad("image,label\na.jpg,caf\xe9\n", NULL, "not a text file in UTF-8", "CSV UTF-8");
	expect_bad("image,label\na,b.jpg,cat\n", NULL, "x.csv:2: the number of fields is 3, but there are 2 columns",
		   "double quotes");
	expect_bad("image,label\na.jpg, \n", NULL, "x.csv:2: the label of \"a.jpg\" is empty", "remove the line");
	expect_bad("image,label\n\"\",cat\n", NULL, "x.csv:2: the column \"image\" is empty", "remove the line");
	expect_bad("image,label\na/../../b.jpg,cat\n", NULL, "x.csv:2: \"a/../../b.jpg\" is outside", "data.train");
	expect_bad("image,label\n/a.jpg,cat\n", NULL, "x.csv:2: \"/a.jpg\" is outside", "data.train");
	expect_bad("image,label\nC:\\a.jpg,cat\n", NULL, "is outside of the directory", "");
	expect_bad("image,label,split\na.jpg,cat,\n", NULL, "x.csv:2: \"\" in the column \"split\"",
		   "data.labels.split=none");
	expect_bad("image,label,split\na.jpg,cat,fold3\n", NULL, "\"fold3\" in the column \"split\"",
		   "train, val or test");
	expect_bad("a.jpg,cat\nb.jpg,dog\n", NULL, "x.csv:1: no column has one of the usual names", "insert a line");
	expect_bad("id,breed,age\na,b,c\n", NULL, "the columns are \"id\", \"breed\", \"age\"", "data.labels.class");
	expect_bad("id,breed\na,b\n", &breed, "x.csv:1: there is no column \"breeds\"", "did you mean \"breed\"?");
	expect_bad("id,breed\na,b\n", &same, "cannot contain both", "");
}

/* Parses a list and describes it: the columns, the rows, the classes. */
static void expect_list(const char *csv, const struct ct_label_columns *columns, const char *want)
{
	static const struct ct_label_columns usual = {0};
	struct ct_class_list classes;
	struct ct_label_list l;
	struct ct_str got = {0};
	char *text = ct_strdup(csv);

	assert_ok(ct_label_list_parse(text, strlen(text), "x.csv", columns ? columns : &usual, &l));
	ct_str_addf(&got, "%s %s %s:", l.image, l.label, l.split ? l.split : "-");
	for (size_t i = 0; i < l.n; i++)
		ct_str_addf(&got, " %s=%s%.*s", l.rows[i].image, l.rows[i].label, (int)l.rows[i].part, "**");
	assert_ok(ct_label_list_classes(&l, "x.csv", &classes));
	for (int k = 0; k < classes.n; k++)
		ct_str_addf(&got, "%s%s", k ? "," : "; ", classes.names[k]);
	ct_class_list_release(&classes);
	ct_label_list_release(&l);
	assert_string_equal(got.s, want);
	ct_str_release(&got);
}

static void test_columns(void **state)
{
	const struct ct_label_columns named = {.image = "ID", .label = "sub class", .split = "none"};

	(void)state;
	expect_list("image,label\na,x\n", NULL, "image label -: a=x; x");
	expect_list("id,breed\na,x\n", NULL, "id breed -: a=x; x");
	expect_list("photo,class,split\na,x,train\nb,y,val\nc,z,TEST\n", NULL, "photo class split: a=x b=y* c=z**; x");
	expect_list("class id,filepaths,labels,data set\n7,t/a.jpg,x,train\n", NULL,
		    "filepaths labels data set: t/a.jpg=x; x");
	expect_list("id,File_Name,target\n1,a,x\n", NULL, "File_Name target -: a=x; x");
	expect_list("id,label,sub_class,split\n.//a\\b,1,x,9\n", &named, "id sub_class -: a/b=x; x");
	/* Numbers are ordered as numbers, names as strings. */
	expect_list("image,label\na,10\nb,009\nc, 2\nd,0\n", NULL, "image label -: a=10 b=009 c=2 d=0; 0,2,9,10");
	expect_list("image,label\na,10\nb,009\nc,x\n", NULL, "image label -: a=10 b=009 c=x; 009,10,x");
}

static void add_image(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name), *directory = ct_path_dir(path);

	FILE *f;

	assert_ok(ct_dir_make(directory));
	assert_non_null(f = fopen(path, "w")); /* ct_file_replace would sync each of many files */
	assert_int_equal(fputs(name, f) < 0 || fclose(f) != 0, 0);
	ct_free(directory);
	ct_free(path);
}

static struct ct_dataset_spec spec_of(const char *dir, const char *labels, bool train)
{
	return (struct ct_dataset_spec){.name = "imagefolder",
					.dir = dir,
					.path = ".",
					.labels = labels,
					.train_labels = "labels.csv",
					.train = train};
}

/* Opens a set and describes it: "KEY=CLASS ..." */
static void expect_set(const struct ct_dataset_spec *spec, const char *want)
{
	struct ct_bytes b = {0};
	struct ct_str got = {0};
	ct_dataset *d;

	if (ct_dataset_open(spec, &d) < 0)
		fail_msg("%s; %s", ct_error_message(), ct_error_hint_text());
	for (uint32_t i = 0; i < ct_dataset_info(d)->n; i++) {
		char key[100];
		int32_t label;

		ct_dataset_key(d, i, key, sizeof(key));
		assert_ok(ct_dataset_fetch(d, i, &b, &label));
		assert_memory_equal(b.data, key, strlen(key));
		ct_str_addf(&got, "%s%s=%d:%s", i ? " " : "", key, label, ct_dataset_class_name(d, label));
	}
	assert_string_equal(got.s, want);
	ct_dataset_close(d);
	ct_str_release(&got);
	ct_free(b.data);
}

static void expect_fail(const struct ct_dataset_spec *spec, const char *says, const char *hints)
{
	ct_dataset *d;

	assert_int_equal(ct_dataset_open(spec, &d), CT_DATA);
	if (!strstr(ct_error_message(), says) || !strstr(ct_error_hint_text(), hints))
		print_error("%s; %s\n", ct_error_message(), ct_error_hint_text());
	assert_non_null(strstr(ct_error_message(), says));
	assert_non_null(strstr(ct_error_hint_text(), hints));
	ct_error_clear();
}

static void test_open(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec train = spec_of(dir, "labels.csv", true), val = spec_of(dir, "labels.csv", false), other;

	(void)state;
	add_image(dir, "b.jpg");
	add_image(dir, "a.png");
	add_image(dir, "v1.2.jpeg");
	add_image(dir, "sub/c.JPG");
	add_image(dir, "sub/d.jpg");
	text_write(dir, "labels.csv", "id,breed\nv1.2,dog\nsub/c.JPG,cat\nb,dog\nb.jpg,dog\na,ape\n");
	expect_set(&train, "a.png=0:ape b.jpg=2:dog v1.2.jpeg=2:dog sub/c.JPG=1:cat");
	expect_fail(&val, "has no column that divides the images", "data.val_fraction");
	/* The classes of the evaluation data are those of the training data. */
	text_write(dir, "val.csv", "file\tclass\nsub/d.jpg\tdog\n");
	other = spec_of(dir, "val.csv", false);
	expect_set(&other, "sub/d.jpg=2:dog");
	text_write(dir, "val.csv", "file\tclass\n\nsub/d.jpg\tdogs\n");
	expect_fail(&other, "val.csv:3: the class \"dogs\" is only in the evaluation data", "add images of this class");
	/* A split column. Rows of other images may be missing only if they are not used. */
	text_write(dir, "labels.csv",
		   "image,label,split\na,1,train\nb,2,valid\nsub/c,1,test\nsub/d,2,train\nno_such_file,1,test\n");
	expect_set(&train, "a.png=0:1 sub/d.jpg=1:2");
	expect_set(&val, "b.jpg=1:2");
	val.val_fraction = 0.5;
	expect_fail(&val, "marks 1 rows as evaluation data, but data.val_fraction", "data.labels.split=none");
	val.val_fraction = 0;
	text_write(dir, "labels.csv", "image,label,split\na,1,train\nsub/c,1,test\n");
	expect_set(&val, "sub/c.JPG=0:1");
	text_write(dir, "labels.csv", "image,label,split\na,1,train\n");
	expect_fail(&val, "marks no row as evaluation data", "data.val=none");
	/* A class list gives the numbers their meaning. */
	train.classes = "names";
	text_write(dir, "names", "red\ngreen\nblue\n");
	text_write(dir, "labels.csv", "image,label\na,2\nb,green\n");
	expect_set(&train, "a.png=2:blue b.jpg=1:green");
	text_write(dir, "labels.csv", "image,label\na,2\nb,3\n");
	expect_fail(&train, "labels.csv:3: the list of 3 classes does not contain the class \"3\"",
		    "data.classes_file");
	temp_dir_remove(dir);
}

/* Opens a set, and expects that a line of its log contains `says`; NULL: that there is no line. */
static void expect_log(const struct ct_dataset_spec *spec, const char *says)
{
	char *path = ct_path_join(spec->dir, "log.txt"), *text;
	ct_dataset *d;
	size_t n;

	assert_ok(ct_log_configure("info"));
	assert_ok(ct_log_open_file(path));
	if (ct_dataset_open(spec, &d) < 0)
		fail_msg("%s; %s", ct_error_message(), ct_error_hint_text());
	ct_dataset_close(d);
	ct_log_close();
	assert_ok(ct_log_configure("error"));
	assert_ok(ct_file_read(path, 1 << 20, &text, &n));
	if (says ? !strstr(text, says) : n > 0)
		fail_msg("the log is \"%s\"", text);
	assert_int_equal(remove(path), 0);
	ct_free(text);
	ct_free(path);
}

static void test_messages(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec train = spec_of(dir, "labels.csv", true), val = spec_of(dir, "val.csv", false);

	(void)state;
	add_image(dir, "a.png");
	add_image(dir, "b.png");
	add_image(dir, "c.png");
	/* An image of the test data is in the list. */
	text_write(dir, "labels.csv", "image,label,split\na,x,train\nb,y,train\nc,?,test\nc.png,x,train\nd,?,test\n");
	expect_log(&train, NULL);
	text_write(dir, "labels.csv", "image,label,split\na,x,train\nb,?,test\n");
	expect_log(&train, "labels.csv: 1 images in");
	/* Which image the training list means does not matter to the evaluation data. */
	add_image(dir, "a.jpg");
	text_write(dir, "labels.csv", "image,label\na,x\nb,y\n");
	text_write(dir, "val.csv", "image,label\na.png,x\nb,y\n");
	val.classes_of = ".";
	expect_log(&val, "val.csv:3: \"b\" is also training data (1 such image)");
	temp_dir_remove(dir);
}

static void test_leading_zeros(void **state)
{
	static const struct {
		const char *names, *labels,
			*val; /* names: the class list; val: NULL: the case is about the training data */
		const char *set, *error;
	} cases[] = {
		/* The training list alone determines whether zeros matter. */
		{NULL, "a,007\nb,bond\n", "a,007\n", "a.png=0:007", NULL},
		{NULL, "a,007\nb,bond\n", "a,7\n", NULL, "val.csv:2: the class \"7\" is only in the evaluation data"},
		{NULL, "a,07\nb,10\n", "a,007\nb,010\n", "a.png=0:7 b.png=1:10", NULL},
		/* In a class list, the class as it is written is the first choice. */
		{"001\n002\n003\n", "a,001\nb,003\n", NULL, "a.png=0:001 b.png=2:003", NULL},
		{"1\n2\n3\n", "a,001\nb,003\n", NULL, "a.png=0:1 b.png=2:3", NULL},
		{"x\ny\n", "a,000\nb,001\n", NULL, "a.png=0:x b.png=1:y", NULL},
	};
	char *dir = temp_dir(), csv[64];

	(void)state;
	add_image(dir, "a.png");
	add_image(dir, "b.png");
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_dataset_spec spec = spec_of(dir, cases[i].val ? "val.csv" : "labels.csv", !cases[i].val);

		spec.classes = cases[i].names ? "names" : NULL;
		text_write(dir, "names", cases[i].names ? cases[i].names : "");
		snprintf(csv, sizeof(csv), "image,label\n%s", cases[i].labels);
		text_write(dir, "labels.csv", csv);
		snprintf(csv, sizeof(csv), "image,label\n%s", cases[i].val ? cases[i].val : "");
		text_write(dir, "val.csv", csv);
		if (cases[i].error)
			expect_fail(&spec, cases[i].error, "");
		else
			expect_set(&spec, cases[i].set);
	}
	temp_dir_remove(dir);
}

static void test_open_fails(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec train = spec_of(dir, "labels.csv", true);

	(void)state;
	add_image(dir, "a.jpg");
	add_image(dir, "a.png");
	add_image(dir, "sub/b.jpg");
	add_image(dir, "c.bmp");
	text_write(dir, "labels.csv", "image,label\na.jpg,x\nb.jpg,y\ne.jpg,y\n");
	expect_fail(&train, "labels.csv:3: there is no image \"b.jpg\"",
		    "sub/b.jpg exists; if the names are relative to its directory, set data.train=sub");
	text_write(dir, "labels.csv", "image,label\nx/b.jpg,x\n");
	expect_fail(&train, "labels.csv:2: there is no image \"x/b.jpg\"", "sub/b.jpg exists; data.train must be");
	text_write(dir, "labels.csv", "image,label\na.jpg,x\nb.jpg,y\ne.jpg,y\n");
	expect_fail(&train, "(2 of 3 rows have no image)", "");
	text_write(dir, "labels.csv", "image,label\na.jpg,x\ne,y\n");
	expect_fail(&train, "labels.csv:3: there is no image \"e\"", "remove the line");
	text_write(dir, "labels.csv", "image,label\nc.bmp,x\n");
	expect_fail(&train, "labels.csv:2: \"c.bmp\" in", "convert the image");
	text_write(dir, "labels.csv", "image,label\na,x\n");
	expect_fail(&train, "labels.csv:2: there are 2 images with the name \"a\"", "write the suffix");
	text_write(dir, "labels.csv", "image,label\na.jpg,x\n./sub/b,x\nsub/b.jpg,y\n");
	expect_fail(&train, "labels.csv:4: \"sub/b.jpg\" has the label \"y\", but \"x\" in line 3", "remove the line");
	text_write(dir, "labels.csv", "image,label,split\na.jpg,x,train\na.jpg,x,val\n");
	expect_fail(&train, "labels.csv:3: \"a.jpg\" is in another part of the data", "remove one of the lines");
	train.labels = train.train_labels = "none.csv";
	assert_int_equal(ct_dataset_open(&train, &(ct_dataset *){NULL}), CT_NOT_FOUND);
	temp_dir_remove(dir);
}

/* The split depends on names only, so the order of the rows does not matter. */
static void test_fraction(void **state)
{
	char *dir = temp_dir(), hex[2][65];
	struct ct_dataset_spec val = spec_of(dir, "labels.csv", false);
	struct ct_str csv = {0};
	ct_dataset *d;

	(void)state;
	for (int order = 0; order < 2; order++) {
		ct_str_clear(&csv);
		ct_str_add(&csv, "image,label\n");
		for (int i = 0; i < 40; i++) {
			const int k = order ? 39 - i : i;
			char name[16];

			snprintf(name, sizeof(name), "%02d.png", k);
			add_image(dir, name);
			ct_str_addf(&csv, "%s,%s\n", name, k % 4 ? "many" : "few");
		}
		text_write(dir, "labels.csv", csv.s);
		val.val_fraction = 0.2;
		assert_ok(ct_dataset_open(&val, &d));
		assert_int_equal(ct_dataset_info(d)->n, 8);
		for (uint32_t i = 0, few = 0; i < 8; i++) {
			int32_t label;

			assert_ok(ct_dataset_label(d, i, &label));
			few += label == 0;
			assert_true(i < 7 || few == 2);
		}
		ct_dataset_digest(d, hex[order]);
		ct_dataset_close(d);
	}
	assert_string_equal(hex[0], hex[1]);
	ct_str_release(&csv);
	temp_dir_remove(dir);
}

/* Writes n rows of row_bytes, most of which are characters of two bytes, then `end`. Expects what the start contains.
 */
static void expect_start(int n, int row_bytes, const char *end, const char *says, size_t want_rows, bool want_all)
{
	static const struct ct_label_columns usual = {0};
	char *dir = temp_dir(), *path = ct_path_join(dir, "x.csv");
	struct ct_str csv = {0};
	struct ct_label_list l;
	enum ct_status st;
	bool all = false;

	ct_str_add(&csv, "image,label\n");
	for (int i = 0; i < n; i++) {
		ct_str_addf(&csv, "%0*d.jpg,", 4 + row_bytes % 2, i);
		for (int at = 10 + row_bytes % 2; at < row_bytes; at += 2)
			ct_str_add(&csv, "\xc3\xa4");
		ct_str_add(&csv, "\n");
	}
	ct_str_add(&csv, end);
	assert_ok(ct_str_status(&csv));
	text_write(dir, "x.csv", csv.s);
	st = ct_label_list_load_start(path, &usual, &l, &all);
	if (says) {
		assert_int_equal(st, CT_DATA);
		assert_non_null(strstr(ct_error_message(), says));
		ct_error_clear();
	} else {
		assert_ok(st);
		assert_int_equal(l.n, want_rows);
		assert_int_equal(all, want_all);
		ct_label_list_release(&l);
	}
	ct_str_release(&csv);
	ct_free(path);
	temp_dir_remove(dir);
}

static void expect_quoted_start(void)
{
	struct ct_str end = {0};

	ct_str_add(&end, "1.jpg,\"");
	for (int i = 0; i < 1 << 18; i++)
		ct_str_add(&end, "a b c\n");
	ct_str_add(&end, "\"\n");
	assert_ok(ct_str_status(&end));
	expect_start(3, 20, end.s, NULL, 3, false);
	end.s[end.len - 2] = ' ';
	expect_start(3, 20, end.s, NULL, 3, false); /* reading the complete file fails */
	end.s[1000] = '\0';
	expect_start(3, 20, end.s, ":5: a quoted field has no closing quote", 0, false);
	ct_str_release(&end);
}

static void test_start(void **state)
{
	(void)state;
	expect_start(100, 20, "", NULL, 100, true);
	expect_start(101, 20, "", NULL, 100, false);
	expect_start(101, 20, "bad", NULL, 100, false);
	expect_start(99, 20, "bad", ":101: the number of fields is 1", 0, false);
	/* The MiB ends within a row, at the first and at the second byte of a character. */
	expect_start(99, 11000, "bad", NULL, ((1 << 20) - 12) / 11000, false);
	expect_start(99, 11001, "bad", NULL, ((1 << 20) - 12) / 11001, false);
	/* It ends at a line break in a quoted field. */
	expect_quoted_start();
	expect_start(0, 20, "", "but no labels", 0, false);
	expect_start(1, 1 << 20, "", "but no labels", 0, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_csv),      cmocka_unit_test(test_bad_lists),     cmocka_unit_test(test_columns),
		cmocka_unit_test(test_open),     cmocka_unit_test(test_open_fails),    cmocka_unit_test(test_fraction),
		cmocka_unit_test(test_messages), cmocka_unit_test(test_leading_zeros), cmocka_unit_test(test_start),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

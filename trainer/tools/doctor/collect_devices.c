/* GPUs are counted in three places: on the PCI bus (/sys), in the driver (/proc) and in CUDA. A GPU on the bus that the
 * driver does not list is lost, and is named by its slot; slots are compared without regard to case. The last error of
 * the driver (Xid) comes from the kernel log, which is read without waiting, and only if there is a GPU. Whether the
 * devices suffice is asked of the same functions that plan a run (trainer/plan/devices.h), so that doctor and the run
 * agree, and their message and hint are kept. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/device/device.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/plan/devices.h"
#include "trainer/tools/doctor/collect_impl.h"

#define KMSG_BYTES ((size_t)1 << 20)

/* Reads a number in hexadecimal from DIR/NAME/FILE, or 0. */
static unsigned long read_hex(const char *dir, const char *name, const char *file)
{
	char *path = ct_strfmt("%s/%s/%s", dir, name, file), *text = NULL;
	unsigned long v = 0;
	size_t len;

	if (path && ct_file_read(path, 4096, &text, &len) == CT_OK)
		v = strtoul(text, NULL, 16);
	ct_error_clear();
	ct_free(text);
	ct_free(path);
	return v;
}

/* A GPU of NVIDIA: class 0300 (VGA) or 0302 (3D controller). */
static bool is_gpu(const char *dir, const char *slot)
{
	const unsigned long class = read_hex(dir, slot, "class") >> 8;

	return read_hex(dir, slot, "vendor") == 0x10de && (class == 0x0300 || class == 0x0302);
}

static bool contains(char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(names[i], name) == 0)
			return true;
	}
	return false;
}

void ct__collect_gpus(const char *sys, const char *proc, struct ct_facts *f)
{
	char *bus = ct_path_join(sys, "bus/pci/devices"), *driver = ct_path_join(proc, "driver/nvidia/gpus");
	char **slots = NULL, **known = NULL;
	size_t n_slots = 0, n_known = 0;

	if (bus && ct_dir_list(bus, &slots, &n_slots) < 0)
		n_slots = 0;
	if (driver && ct_dir_list(driver, &known, &n_known) < 0)
		n_known = 0;
	f->gpus_driver = (int64_t)n_known;
	for (size_t i = 0; i < n_slots; i++) {
		const size_t len = strlen(f->lost_slots);

		if (!is_gpu(bus, slots[i]))
			continue;
		f->gpus_pci++;
		if (!contains(known, n_known, slots[i]))
			snprintf(f->lost_slots + len, sizeof(f->lost_slots) - len, "%s%s", len > 0 ? ", " : "",
				 slots[i]);
	}
	ct_error_clear();
	ct_dir_list_free(known, n_known);
	ct_dir_list_free(slots, n_slots);
	ct_free(driver);
	ct_free(bus);
}

void ct__find_xid(const char *records, char *out, size_t len)
{
	const char *last = NULL;

	for (const char *p = records; (p = strstr(p, "NVRM: Xid")) != NULL; p++)
		last = p + strlen("NVRM: ");
	if (last)
		snprintf(out, len, "%.*s", (int)strcspn(last, "\n"), last);
}

/* Each read from /dev/kmsg returns one record. Only root may read it on many hosts. */
static void collect_xid(struct ct_facts *f)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct ct_str text = {0};
	char record[8192];
	ssize_t n;

	while (fd >= 0 && text.len < KMSG_BYTES && (n = read(fd, record, sizeof(record))) > 0)
		ct_str_add_bytes(&text, record, (size_t)n);
	if (fd >= 0)
		close(fd);
	ct__find_xid(ct_str_text(&text), f->xid, sizeof(f->xid));
	ct_str_release(&text);
}

void ct__collect_devices(const struct ct_collect_opts *o, struct ct_facts *f)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct ct_plan_devices d;
	int count = 0;

	ct__collect_gpus("/sys", "/proc", f);
	if (f->gpus_pci > 0)
		collect_xid(f);
	snprintf(f->visible_devices, sizeof(f->visible_devices), "%s", visible ? visible : "");
	if (!o->cfg)
		return;
	enum ct_status st = ct_plan_devices(o->cfg, &d);
	if (st == CT_OK) {
		snprintf(f->device, sizeof(f->device), "%s", d.kind);
		st = ct_plan_check_devices(o->cfg, o->ranks.local);
	}
	if (st < 0) {
		snprintf(f->device_error, sizeof(f->device_error), "%s", ct_error_message());
		snprintf(f->device_hint, sizeof(f->device_hint), "%s", ct_error_hint_text());
	}
	if (strcmp(f->device, "cuda") == 0 && ct_device_count("cuda", &count) == CT_OK) {
		f->gpus_visible = count;
		f->gpus_wanted = d.shared ? 0 : o->ranks.local;
	}
	ct_error_clear();
}

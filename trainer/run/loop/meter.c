/* The training clock is the wall clock minus the excluded time. Steps of a recording end together, but their results
 * are taken one after the other. The first of them is charged an even share of the time since the last step, and the
 * share of the others is held back (ahead_ns) until they are added. Otherwise, an interval that ends between them
 * would have the time of steps that it does not have. */
#include "trainer/run/loop/meter.h"

#include "base/clock.h"

static int64_t training_ns(const struct ct_meter *m)
{
	return ct_now_ns() - m->excluded_ns - m->ahead_ns;
}

static double seconds(int64_t ns)
{
	return (double)ns / (double)CT_SEC;
}

void ct_meter_init(struct ct_meter *m, int64_t start_ns)
{
	*m = (struct ct_meter){.start_ns = start_ns, .accounted_ns = ct_now_ns()};
	m->added_ns = training_ns(m);
	ct_meter_restart(m, &m->window);
	ct_meter_restart(m, &m->epoch);
	ct_meter_restart(m, &m->run);
}

static void add(struct ct_interval *i, const struct ct_step_result *r)
{
	i->steps++;
	i->images += r->n_global;
	i->own += r->n_own;
	ct_step_times_add(&i->times, &r->times);
}

static void share_time(struct ct_meter *m, int same_end)
{
	if (m->ahead_ns == 0)
		m->share_ns = (training_ns(m) - m->added_ns) / (same_end + 1);
	m->ahead_ns = m->share_ns * same_end;
	m->added_ns += m->share_ns;
}

void ct_meter_add(struct ct_meter *m, const struct ct_step_result *r)
{
	m->excluded_ns += r->compile_ns;
	share_time(m, r->same_end);
	add(&m->window, r);
	add(&m->epoch, r);
	add(&m->run, r);
	if (m->startup_s <= 0)
		m->startup_s = seconds(ct_now_ns() - m->start_ns);
}

void ct_meter_exclude_since(struct ct_meter *m, int64_t since_ns)
{
	m->excluded_ns += ct_now_ns() - since_ns;
}

double ct_meter_seconds(const struct ct_meter *m, const struct ct_interval *i)
{
	return seconds(training_ns(m) - i->from_ns);
}

void ct_meter_restart(const struct ct_meter *m, struct ct_interval *i)
{
	*i = (struct ct_interval){.from_ns = training_ns(m)};
}

double ct_meter_take_seconds(struct ct_meter *m)
{
	int64_t now = ct_now_ns(), ns = now - m->accounted_ns;

	m->accounted_ns = now;
	return seconds(ns);
}

#include "trainer/run/pipeline/pass_schedule.h"

int ct_pipe_in_flight(int n_stages, int stage, int n_micros)
{
	const int most = n_stages - stage;

	return most < n_micros ? most : n_micros;
}

double ct_pipe_bubble(int n_stages, int n_micros)
{
	return (double)(n_stages - 1) / (double)(n_micros + n_stages - 1);
}

bool ct_pipe_next(struct ct_pipe_schedule *s, struct ct_pipe_task *out)
{
	const int most = ct_pipe_in_flight(s->n_stages, s->stage, s->n_micros);

	if (s->n_backward == s->n_micros)
		return false;
	out->backward = s->n_forward == s->n_micros || s->n_forward - s->n_backward == most;
	out->micro = out->backward ? s->n_backward++ : s->n_forward++;
	return true;
}

#include "cluster/planning.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct measurement {
    uint32_t round;
    kin_planner_measured measured;
    kin_facts facts;
} measurement;

struct kin_planning {
    kin_planning_options o;
    pthread_t thread;
    bool is_started;

    pthread_mutex_t mutex; // guards the following
    pthread_cond_t changed;
    bool is_closing, asks, has_question, has_measurement, has_answer, has_round, has_standby_question, has_standby;
    bool has_unexplained, has_reasons;
    uint32_t round;
    kin_planner_question question;         // pending
    kin_planner_question standby_question; // pending
    kin_planner_question unexplained;      // question of the last plan
    kin_planning_reasons reasons;
    kin_planning_standby standby;
    measurement measurement; // pending
    kin_planning_answer answer;

    // Used by the planning thread.
    kin_planner_question question_now;
    measurement measurement_now;
    kin_planning_answer answer_now;
    kin_planning_standby standby_now;
    kin_planning_reasons reasons_now;
};

// ---- the planning thread

static void plan(kin_planning *p) {
    const kin_planner_question *q = &p->question_now;
    kin_planning_answer *a = &p->answer_now;
    *a = (kin_planning_answer){.question = q->number, .n = q->n};
    memcpy(a->ids, q->ids, sizeof a->ids);
    a->has_plan = p->o.calls.ask(p->o.planner, q, &a->plan, &a->why) == 0;
    pthread_mutex_lock(&p->mutex);
    p->answer = *a;
    p->has_answer = true;
    p->unexplained = *q;
    p->has_unexplained = a->has_plan && p->o.calls.left_out;
    pthread_mutex_unlock(&p->mutex);
    p->o.done(p->o.user);
}

static void explain(kin_planning *p) {
    const kin_planner_question *q = &p->question_now;
    kin_planning_reasons *r = &p->reasons_now;
    *r = (kin_planning_reasons){.question = q->number, .n = q->n};
    memcpy(r->ids, q->ids, sizeof r->ids);
    for (int i = 1; i < q->n; i++) p->o.calls.left_out(p->o.planner, q, i, r->why[i]);
    pthread_mutex_lock(&p->mutex);
    p->reasons = *r;
    p->has_reasons = true;
    pthread_mutex_unlock(&p->mutex);
    p->o.done(p->o.user);
}

static void plan_standby(kin_planning *p) {
    const kin_planner_question *q = &p->question_now;
    kin_planning_standby *s = &p->standby_now;
    kin_err err;
    *s = (kin_planning_standby){.number = q->number, .n = q->n};
    memcpy(s->ids, q->ids, sizeof s->ids);
    for (int i = 1; i < q->n; i++) s->has[i] = p->o.calls.without(p->o.planner, q, i, &s->plans[i], &err) == 0;
    pthread_mutex_lock(&p->mutex);
    p->standby = *s;
    p->has_standby = true;
    pthread_mutex_unlock(&p->mutex);
    p->o.done(p->o.user);
}

static void learn(kin_planning *p) {
    measurement *m = &p->measurement_now;
    if (m->measured.facts) m->measured.facts = &m->facts;
    bool asks = p->o.calls.add_measured(p->o.planner, &m->measured);
    pthread_mutex_lock(&p->mutex);
    p->round = m->round;
    p->asks = asks || (p->has_round && p->asks);
    p->has_round = true;
    pthread_mutex_unlock(&p->mutex);
    p->o.done(p->o.user);
}

// Measurements are processed first: the question's answer may be better then.
static void *work(void *arg) {
    kin_planning *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (!p->is_closing) {
        bool learns = p->has_measurement, plans = !learns && p->has_question;
        bool explains = !learns && !plans && p->has_unexplained;
        bool standby = !learns && !plans && !explains && p->has_standby_question;
        if (learns) p->measurement_now = p->measurement;
        if (plans) p->question_now = p->question;
        if (learns) p->has_measurement = false;
        if (plans) p->has_question = false;
        if (explains) p->question_now = p->unexplained;
        if (explains) p->has_unexplained = false;
        if (standby) p->question_now = p->standby_question;
        if (standby) p->has_standby_question = false;
        if (!learns && !plans && !explains && !standby) {
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        if (learns) learn(p);
        if (plans) plan(p);
        if (explains) explain(p);
        if (standby) plan_standby(p);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

// ---- opening and closing

int kin_planning_open(kin_planning **out, const kin_planning_options *o, kin_err *err) {
    kin_planning *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->o = *o;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->is_started = pthread_create(&p->thread, NULL, work, p) == 0;
    if (p->is_started) return 0;
    kin_planning_close(p);
    *out = NULL;
    return kin_err_set(err, "cannot start the planning thread");
}

void kin_planning_stop(kin_planning *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->is_closing = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    if (p->is_started) pthread_join(p->thread, NULL);
    p->is_started = false;
}

void kin_planning_close(kin_planning *p) {
    if (!p) return;
    kin_planning_stop(p);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

// ---- the loop's thread

void kin_planning_ask(kin_planning *p, const kin_planner_question *question) {
    pthread_mutex_lock(&p->mutex);
    p->question = *question;
    p->has_question = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void kin_planning_ask_standby(kin_planning *p, const kin_planner_question *question) {
    if (!p->o.calls.without) return;
    pthread_mutex_lock(&p->mutex);
    p->standby_question = *question;
    p->has_standby_question = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void kin_planning_add_measurement(kin_planning *p, uint32_t round, const kin_planner_measured *measured) {
    pthread_mutex_lock(&p->mutex);
    measurement *m = &p->measurement;
    m->round = round;
    m->measured = *measured;
    if (measured->facts) m->facts = *measured->facts;
    p->has_measurement = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

bool kin_planning_pop_answer(kin_planning *p, kin_planning_answer *out) {
    pthread_mutex_lock(&p->mutex);
    bool has = p->has_answer;
    if (has) *out = p->answer;
    p->has_answer = false;
    pthread_mutex_unlock(&p->mutex);
    return has;
}

bool kin_planning_pop_reasons(kin_planning *p, kin_planning_reasons *out) {
    pthread_mutex_lock(&p->mutex);
    bool has = p->has_reasons;
    if (has) *out = p->reasons;
    p->has_reasons = false;
    pthread_mutex_unlock(&p->mutex);
    return has;
}

bool kin_planning_pop_round(kin_planning *p, uint32_t *round, bool *asks) {
    pthread_mutex_lock(&p->mutex);
    bool has = p->has_round;
    *round = p->round;
    *asks = p->asks;
    p->has_round = false;
    pthread_mutex_unlock(&p->mutex);
    return has;
}

bool kin_planning_pop_standby(kin_planning *p, kin_planning_standby *out) {
    pthread_mutex_lock(&p->mutex);
    bool has = p->has_standby;
    if (has) *out = p->standby;
    p->has_standby = false;
    pthread_mutex_unlock(&p->mutex);
    return has;
}

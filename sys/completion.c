#include "sys/completion.h"

void kin_completion_init(kin_completion *c) {
    *c = (kin_completion){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
}

void kin_completion_fini(kin_completion *c) {
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
}

uint32_t kin_completion_ask(kin_completion *c) {
    pthread_mutex_lock(&c->mutex);
    uint32_t generation = ++c->asked;
    pthread_mutex_unlock(&c->mutex);
    return generation;
}

uint32_t kin_completion_asked(kin_completion *c) {
    pthread_mutex_lock(&c->mutex);
    uint32_t generation = c->asked;
    pthread_mutex_unlock(&c->mutex);
    return generation;
}

void kin_completion_done(kin_completion *c, uint32_t generation, bool result) {
    pthread_mutex_lock(&c->mutex);
    if ((int32_t)(generation - c->done) > 0) {
        c->done = generation;
        c->result = result;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->mutex);
}

bool kin_completion_wait(kin_completion *c, uint32_t generation) {
    pthread_mutex_lock(&c->mutex);
    while ((int32_t)(c->done - generation) < 0) pthread_cond_wait(&c->changed, &c->mutex);
    bool result = c->result;
    pthread_mutex_unlock(&c->mutex);
    return result;
}

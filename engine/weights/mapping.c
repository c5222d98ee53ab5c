#include "engine/weights/mapping.h"

#include "sys/pages.h"

uint64_t kin_weights_page_bytes(const kin_weights_block *b) {
    return kin_weights_align_up(b->packed_bytes, KIN_PACKED_ALIGN);
}

void kin_weights_point_at_mapping(kin_weights_block *b) {
    for (int i = 0; i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        (*p->slot)->data = b->pack ? b->base + p->offset : (uint8_t *)p->data;
    }
}

bool kin_weights_on_disk(const kin_weights *w, const kin_weights_block *b) {
    return b->pack ? atomic_load(&b->in_file) : kin_gguf_on_disk(w->model->gguf);
}

uint64_t kin_weights_source_hash(const kin_weights_block *b) {
    uint64_t hash = 0;
    for (int i = 0; i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        for (uint64_t k = 0; k < p->n_runs; k++) hash = kin_packed_hash(p->data + k * p->stride, p->run, hash);
    }
    return hash;
}

void kin_weights_forget_source(const kin_weights *w, const kin_weights_block *b) {
    for (int i = 0; i < b->n_pieces && kin_gguf_on_disk(w->model->gguf); i++)
        kin_pages_drop((uint8_t *)b->pieces[i].data, (b->pieces[i].n_runs - 1) * b->pieces[i].stride + b->pieces[i].run);
}

void kin_weights_drop_packed(const kin_weights_block *b) {
    kin_pages_drop(b->base, kin_weights_page_bytes(b));
}

void kin_weights_drop_pages(const kin_weights *w, const kin_weights_block *b) {
    if (b->pack && atomic_load(&b->in_file)) kin_weights_drop_packed(b);
    if (!b->pack) kin_weights_forget_source(w, b);
}

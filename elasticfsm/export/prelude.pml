/* Collectives: entered, released when every member has entered, left. A pending entry is OP + 32 * (machine + 1) +
 * 256 * PLACE, machine + 1 = 0 for a posted one; PLACE is 1 + 4 * generation + kind. Entries are kept oldest first. */
#define AT(w, m)      at[(w) * MACHINES + (m)]        /* state of a machine; 0: it does not run */
#define STEP(w, m)    step[(w) * MACHINES + (m)]      /* the step of its list that comes next */
#define INSIDE(w, m)  inside[(w) * MACHINES + (m)]    /* 0: out; 1: entered; 2 + answer + 16 * votes: released */
#define SAID(w, m)    said[(w) * MACHINES + (m)]      /* 0: nothing; 1: a step failed; 1 + answer: its last answer */
#define PENDING(w, k) pending[(w) * SLOTS + (k)]
#define OP(c)         ((c) % 32)
#define PLACE(c)      ((c) / 256)
#define GENERATION(p) (((p) - 1) / 4)
#define MEMBER(g, w)  ((((g) -> NEW_MEMBERS : OLD_MEMBERS) >> (w)) & 1)
#define CLOSED(w, g)  ((closed[w] >> (g)) & 1)
#define BROKEN(w, g)  ((closed[w] >> ((g) + 2)) & 1)    /* closed, and not on purpose */
#define BOUNDARY(w)   (held[w] == 0)                  /* the main loop is between two foreground lists */
#define MISS(w, x)    ((facts[w] & (x)) != (x))
#define FRONT(w, p)   (PLACE(PENDING(w, 0)) == (p) -> OP(PENDING(w, 0)) : (PLACE(PENDING(w, 1)) == (p) -> OP(PENDING(w, 1)) : \
                      (PLACE(PENDING(w, 2)) == (p) -> OP(PENDING(w, 2)) : (PLACE(PENDING(w, 3)) == (p) -> OP(PENDING(w, 3)) : 0))))
#define POSTED(w, p)  ((PLACE(PENDING(w, 0)) == (p) && PENDING(w, 0) % 256 < 32) || (PLACE(PENDING(w, 1)) == (p) && PENDING(w, 1) % 256 < 32) || \
                      (PLACE(PENDING(w, 2)) == (p) && PENDING(w, 2) % 256 < 32) || (PLACE(PENDING(w, 3)) == (p) && PENDING(w, 3) % 256 < 32))

/* scratch of one transition; not part of the state */
hidden short i_, j_, k_, n_, w_, entry_, answer_, votes_, result_, met_;

#ifdef TALLY           /* count refutations and go on: one run judges every property */
#define refute(property, wrong) if :: (wrong) -> c_code { tally(TALLY_##property, #property); } :: else fi
#else
#define refute(property, wrong) assert(!(wrong))
#endif

inline stand(me, m, s) { AT(me, m) = s; STEP(me, m) = 0; INSIDE(me, m) = 0; SAID(me, m) = 0 }

inline finish(me, m, gone, given) {
    STEP(me, m) = STEP(me, m) + 1;
    INSIDE(me, m) = 0;
    facts[me] = (facts[me] & ~(gone)) | (given)
}

inline fail(me, m) { INSIDE(me, m) = 0; SAID(me, m) = 1 }

/* A member closes its side of a generation: what it entered there will never be released. */
inline close_side(me, g) {
    closed[me] = closed[me] | (1 << (g));
    i_ = 0; j_ = 0;
    do
    :: i_ < SLOTS ->
        entry_ = PENDING(me, i_); PENDING(me, i_) = 0;
        if
        :: entry_ != 0 && GENERATION(PLACE(entry_)) != (g) -> PENDING(me, j_) = entry_; j_ = j_ + 1
        :: else
        fi;
        i_ = i_ + 1
    :: else -> break
    od;
    skip
}

/* What is wrong with entering operation `op` at a place now. */
inline judge_order(me, g, p, op, standby) {
    n_ = 0; i_ = 0;
    do :: i_ < SLOTS -> n_ = n_ + (PLACE(PENDING(me, i_)) == (p)); i_ = i_ + 1 :: else -> break od;
    w_ = 0;
    do
    :: w_ < ENGINES ->
        if
        :: w_ != (me) && MEMBER(g, w_) ->
            i_ = 0; k_ = 0; entry_ = 0;
            do
            :: i_ < SLOTS ->
                if
                :: PLACE(PENDING(w_, i_)) == (p) -> if :: k_ == n_ -> entry_ = PENDING(w_, i_) :: else fi; k_ = k_ + 1
                :: else
                fi;
                i_ = i_ + 1
            :: else -> break
            od;
            refute(collective_order, entry_ != 0 && OP(entry_) != (op));
            refute(no_use_after_destroy, !(standby) && CLOSED(w_, g) && !BROKEN(w_, g))
        :: else
        fi;
        w_ = w_ + 1
    :: else -> break
    od;
    skip
}

/* Whether everybody else has entered already, so that who enters now is the last. */
inline meet(me, g, p, op) {
    met_ = !CLOSED(me, g); w_ = 0;
    do
    :: w_ < ENGINES ->
        if
        :: MEMBER(g, w_) ->
            entry_ = 0; i_ = SLOTS;
            do
            :: i_ > 0 -> i_ = i_ - 1; if :: PLACE(PENDING(w_, i_)) == (p) -> entry_ = PENDING(w_, i_) :: else fi
            :: else -> break
            od;
            if
            :: w_ == (me) -> met_ = met_ && entry_ == 0
            :: else -> met_ = met_ && OP(entry_) == (op) && !CLOSED(w_, g)
            fi
        :: else
        fi;
        w_ = w_ + 1
    :: else -> break
    od;
    skip
}

inline enter(me, g, p, op, waiter) {
    if
    :: !CLOSED(me, g) ->
        i_ = 0;
        do :: i_ < SLOTS && PENDING(me, i_) != 0 -> i_ = i_ + 1 :: else -> break od;
        assert(i_ < SLOTS);
        PENDING(me, i_) = (op) + 32 * (waiter) + 256 * (p)
    :: else
    fi
}

/* Everybody has entered: every member is told `result_`, and its oldest entry at this place is gone. */
inline release(g, p) {
    w_ = 0;
    do
    :: w_ < ENGINES ->
        if
        :: MEMBER(g, w_) ->
            i_ = 0;
            do :: PLACE(PENDING(w_, i_)) != (p) -> i_ = i_ + 1 :: else -> break od;
            k_ = (PENDING(w_, i_) % 256) / 32;
            if :: k_ > 0 -> INSIDE(w_, k_ - 1) = 2 + result_ :: else fi;
            do :: i_ < SLOTS - 1 -> PENDING(w_, i_) = PENDING(w_, i_ + 1); i_ = i_ + 1 :: else -> break od;
            PENDING(w_, SLOTS - 1) = 0
        :: else
        fi;
        w_ = w_ + 1
    :: else -> break
    od;
    skip
}

/* A message from one engine to every peer of its generation; and the end of a wave, which makes such messages void.
 * Macros, since an inline cannot be given the name of an array. */
#define tell_peers(me, box) w_ = 0; \
    do :: w_ < ENGINES -> if :: w_ != (me) && MEMBER(switched[me], w_) -> box[w_] = box[w_] | (1 << (me)) :: else fi; \
          w_ = w_ + 1 :: else -> break od; skip
#define void_mail(g, box) w_ = 0; \
    do :: w_ < ENGINES -> if :: MEMBER(g, w_) -> box[w_] = 0 :: else fi; w_ = w_ + 1 :: else -> break od; skip

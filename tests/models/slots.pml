/* SPDX-License-Identifier: LGPL-2.1-or-later
 *
 * Slots and lock words with takeover: pool/slot.c (take_free_byte, raise_generation, strike_note,
 * slot_dead) and pool/lock.c (lock_acquire, wait_free, take_over, release_as).
 *
 * Modelled: each process takes a free byte, raises the slot's generation, strikes out the old note under
 * the lock, then locks and unlocks ROUNDS times. It may be killed before any statement; its byte is then
 * free, and another process may take it at once. A lock word is {slot, generation}; every load, store and
 * CAS of a shared word is a step of its own (all of them are seq_cst in the code). The futex compares and
 * sleeps in one step and wakes one sleeper, whichever.
 * Left out: the thread id in the word (threads of one process tell each other apart by tgkill), spinning,
 * time. Where deaths are modelled a sleep ends whenever it likes (its time-out), so the futex words do not
 * matter; in check `wakes` nobody dies and no sleep ends by itself.
 *
 * Properties: mutual exclusion; no lock is taken from a living owner; who takes a lock over knows it, also
 * after somebody who could not put right what the dead one left (strike_note) had it; every process gets
 * on; without deaths no sleeper needs its time-out.
 *
 * Check: deaths -DPROCS=2 -DDEATHS=2
 * Check: wakes -DPROCS=3 -DDEATHS=0 -DFUTEX
 * Check: gets_on -DPROCS=2 -DDEATHS=1 ltl=all_end
 * Rule: NO_GENERATION deaths whoever locks a slot's byte raises the generation
 * Rule: GENERATION_LATE deaths before anything else
 * Rule: TAKE_BY_STORE deaths takeover is one CAS from exactly the dead word
 * Rule: DEAD_BY_TIME deaths no time limit makes an owner dead
 * Rule: DIED_FORGOTTEN deaths who cannot put it right leaves the lock as a dead owner's
 * Rule: BYTE_ALONE gets_on the generation counts as well as the byte
 * Rule: NO_LOOK gets_on a waiter looks at the owner each 100 ms
 * Rule: RELEASE_LOOKS_FIRST wakes lock_release stores 0, then looks at waiters
 * Rule: WAITERS_LATE wakes a waiter raises the count before it sleeps
 * Rule: WAKING_STAYS wakes the woken clears `waking`
 * Rule: NO_SECOND_LOOK wakes a wake that found nobody looks again at the word
 */
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define SLOTS PROCS
#define FREE  0
#define DIED  63 /* WORD_DIED: no process's slot */
#define WORD(s, g) (1 + (s) * 8 + (g))
#define SLOT(w)	   (((w) - 1) / 8)
#define GEN(w)	   (((w) - 1) % 8)

byte owner_of_byte[SLOTS]; /* fcntl lock: 1 + process, or 0 */
byte generation[SLOTS];
byte word, waiters, waking; /* struct ctl_lock */
bool asleep[PROCS]; /* in futex_wait */
bool kill[PROCS];
byte deaths, finished;
bool ended[PROCS];

/* What is shown: who is inside and lives, and what a dead one left. */
byte inside;
bool dirty;
bool is_inside[PROCS];

inline futex_wait(expected)
{
	atomic {
		if
		:: word != expected -> eagain = true
		:: else -> asleep[me] = true; eagain = false
		fi
	}
	if
	:: !eagain ->
		!asleep[me]
	:: else
	fi
}

inline futex_wake(count)
{
	atomic {
		count = 0;
		if
		:: PROCS > 0 && asleep[0] -> asleep[0] = false; count = 1
		:: PROCS > 1 && asleep[1] -> asleep[1] = false; count = 1
#if PROCS > 2
		:: PROCS > 2 && asleep[2] -> asleep[2] = false; count = 1
#endif
		:: else
		fi
	}
}

/* died: LOCK_OWNER_DIED */
inline lock_acquire()
{
	look = false;
	do
	:: atomic {
		if
		:: word == FREE ->
			word = mine; seen = FREE; died = false;
			assert(inside == 0);
			assert(!dirty); /* nobody takes what a dead owner left as if it were whole */
			inside++; is_inside[me] = true;
			break
		:: else -> seen = word
		fi
	   }
	   /* -EDEADLK is for a thread that is inside itself */
	   assert(seen != mine);
#ifndef NO_LOOK
	   if
	   :: look || seen == DIED ->
		/* slot_dead: the generation, then the byte */
		dead = false;
#ifndef BYTE_ALONE
		if
		:: seen == DIED -> dead = true
		:: seen != DIED && generation[SLOT(seen)] != GEN(seen) -> dead = true
		:: else
		fi;
#else
		if
		:: seen == DIED -> dead = true
		:: else
		fi;
#endif
		if
		:: !dead -> dead = (owner_of_byte[SLOT(seen)] == 0)
		:: else
		fi;
#ifdef DEAD_BY_TIME
		dead = true;
#endif
		if
		:: dead ->
			atomic {
				if
#ifndef TAKE_BY_STORE
				:: word == seen ->
#else
				:: true ->
#endif
					word = mine; died = true;
					assert(inside == 0);
					inside++; is_inside[me] = true;
					break
				:: else
				fi
			}
		:: else
		fi
	   :: else
	   fi;
#endif
	   /* wait_free */
#ifndef FUTEX
	   look = true;
#else
#ifndef WAITERS_LATE
	   waiters++;
#endif
	   seen = word;
	   if
	   :: seen != FREE -> futex_wait(seen)
	   :: else
	   fi;
#ifdef WAITERS_LATE
	   waiters++;
#endif
#ifndef WAKING_STAYS
	   waking = 0;
#endif
	   waiters--;
#endif
	   atomic { seen = 0; dead = false; eagain = false }
	od;
	atomic { seen = 0; dead = false; look = false; eagain = false }
}

/* release_as */
inline lock_release(value)
{
#ifdef RELEASE_LOOKS_FIRST
	count = waiters;
#endif
	atomic { assert(value == DIED || !dirty); word = value; inside--; is_inside[me] = false }
#ifdef FUTEX
#ifndef RELEASE_LOOKS_FIRST
	count = waiters;
#endif
	if
	:: count != 0 ->
		count = waking;
		if
		:: count == 0 ->
			atomic { count = waking; waking = 1 } /* xchg */
			if
			:: count == 0 ->
				futex_wake(count);
				if
				:: count == 0 ->
					waking = 0;
#ifndef NO_SECOND_LOOK
					count = word;
					if
					:: count == FREE -> futex_wake(count)
					:: else
					fi
#endif
				:: else
				fi
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	count = 0
#endif
}

proctype process(byte me)
{
	byte slot, mine, seen, count, round;
	bool died, dead, look, eagain;

again:	{
		/* take_free_byte */
		atomic {
			slot = 0;
			do
			:: owner_of_byte[slot] == 0 -> owner_of_byte[slot] = me + 1; break
			:: else -> slot++
			od
		}
#ifdef NO_GENERATION
		mine = WORD(slot, generation[slot]);
#else
		mine = WORD(slot, generation[slot] + 1);
#ifndef GENERATION_LATE
		generation[slot] = generation[slot] + 1;
#endif
#endif
#if DEATHS > 0
		/* strike_note */
		lock_acquire();
#ifdef DIED_FORGOTTEN
		lock_release(FREE);
#else
		if
		:: died -> lock_release(DIED)
		:: else -> lock_release(FREE)
		fi;
#endif
#endif
#ifdef GENERATION_LATE
		generation[slot] = generation[slot] + 1;
#endif
		round = 0;
		do
		:: round < ROUNDS ->
			lock_acquire();
			/* lane_lock puts right what the dead one left */
			dirty = false;
			assert(inside == 1);
			lock_release(FREE);
			round++
		:: else -> break
		od;
		atomic { owner_of_byte[slot] = 0; finished++; ended[me] = true }
		goto over
	} unless {
		atomic {
			kill[me] ->
			kill[me] = false;
			died = false; dead = false; look = false; eagain = false;
			seen = 0; count = 0; round = 0; mine = 0; slot = 0;
			goto again
		}
	};
over:	skip
}

/* kill -9, at any time */
active proctype killer()
{
	byte victim, s;

	do
	:: atomic {
		deaths < DEATHS ->
		select(victim : 0 .. PROCS - 1);
		deaths++;
		if
		:: !ended[victim] ->
			kill[victim] = true; asleep[victim] = false;
			if
			:: is_inside[victim] ->
				is_inside[victim] = false; inside--; dirty = true
			:: else
			fi;
			for (s : 0 .. SLOTS - 1) {
				if
				:: owner_of_byte[s] == victim + 1 -> owner_of_byte[s] = 0
				:: else
				fi
			}
		:: else
		fi;
		victim = 0; s = 0
	   }
	:: break
	od
}

init {
	atomic {
		run process(0);
		run process(1);
#if PROCS > 2
		run process(2);
#endif
	}
}

#ifdef LTL
ltl all_end { <> (finished == PROCS) }
#endif

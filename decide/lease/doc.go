// Package lease decides who may write for a site whose store lies on one machine, when successors were named in advance. It is
// pure: candidates and voters take messages and the time, and give messages. It never opens a store or a connection; the servers of
// cluster and worker do that.
//
// A candidate is a machine that may be the cluster: the one that leads, or a successor. Voters are the site's workers. A term is
// held by one candidate:
//
//	           a majority votes            most have heard its first lease
//	Standing ------------------> Founding ---------------------------------> Leading
//	   ^                            |                                           |
//	   +----------------------------+--- time runs out, or a higher term -------+
//
// What is acknowledged is safe because of what voters and successors have written down, whatever any clock shows:
//
//   - A voter votes once in a term, and hears no lease of a lower one.
//   - With each lease the holder names its in-sync replicas: successors that have everything it acknowledged. A voter votes for an in-sync
//     replica of the last lease that it heard, or for who held that.
//   - The holder acknowledges a write when every in-sync replica has it, of the present list and of earlier ones that a successor could
//     still be elected by. A list is out of the world when enough voters have written down a later one: so many that no
//     majority is without one of them.
//
// Time is for speed alone: a voter waits until its promise to the holder has run out before it votes for another, so that
// nobody is deposed who can be reached; a holder that hears of too few promises stops by itself, and says so.
package lease

import "skerry.dev/skerry/wire"

// Majority is how many of n voters it takes to depose a holder.
func Majority(n int) int { return n/2 + 1 }

// Blocking is how many of n voters a holder must keep: with so many there is no majority without one of them. Of an odd number
// it is a majority, too; of an even one it is half.
func Blocking(n int) int { return n - Majority(n) + 1 }

// MaxInSync is how many successors are given the store at a time.
const MaxInSync = 2

// MaxVoters is how many voters a site counts; further workers have no vote. Leases of more would cost traffic for nothing.
const MaxVoters = 99

func named(list []wire.LeaseCandidate, name string) bool {
	for _, s := range list {
		if s.Name == name {
			return true
		}
	}
	return false
}

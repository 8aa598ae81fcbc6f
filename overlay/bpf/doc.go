// Package bpf is the overlay's fast path: programs in the kernel that lead service addresses to instances, write and read
// the headers of plain paths, and hand what is to be encrypted to the datapath. It owns its directory below the bpf file
// system, the programs on the host's ends of cables, on uplinks and on the bridge, and the devices <prefix>.t, .m and .v.
// The worker's wiring imports it.
//
// Tables, programs and their attachment are pinned: traffic goes on while the agent is away, and the next one goes on with
// what it finds. All of it is changed only by Set. The programs are in c/; objects are committed, so that a build needs no
// compiler for them. They need Linux 6.1. At cables they are filters of clsact queues, elsewhere links of TCX, or filters before 6.6.
//
// What the kernel cannot decide comes to the agent over the tap <prefix>.m: a packet for an address of which nothing is
// known is held for up to a second and sent on when Set makes it known; one that is too long is answered by ICMP, or cut if
// that is allowed; one of a flow that Reset ended is answered by a TCP reset.
package bpf

//go:generate go tool bpf2go -go-package bpf -cc clang-19 -strip llvm-strip -target bpfel -no-global-types prog c/overlay.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-address-of-packed-member -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate sh -c "cat c/maps.h c/packet.h c/flow.h c/neighbour.h c/link.h c/plain.h c/way.h c/overlay.c | sha256sum | cut -d' ' -f1 >c/built.sha256"

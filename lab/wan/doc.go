// Package wan delays and drops packets between hosts of a lab, without help of the kernel's netem: the kernel queues the
// packets (NFQUEUE) and this package gives the verdict when their time has come. The packet itself stays in the kernel,
// only its first bytes are looked at. It owns one queue of the network namespace it runs in; rules that lead packets to
// it are those of package lab and of the benchmark, which alone import it.
package wan

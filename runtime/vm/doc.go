// Package vm runs containers in small virtual machines ("microvm"): each task is a guest of its own, with a kernel that is
// an artifact of the operator's, the image as a read-only disk, and an init of ours (guestinit) that runs the task's program.
// It knows of one way to run a machine, QEMU; another is one more hypervisor. The worker's wiring imports it, and main calls
// Main.
//
//	agent ── conmon ── skerry vm-run ── qemu ── guestinit ── program
//	   └── vm.sock ───────┘ │             └ virtio-serial
//	                        └── virtiofsd     (the task's mounts)
//
// Vm-run is what conmon supervises: it passes output, signals and the exit status on, and offers the agent a socket for
// further processes and for what the guest uses. It and the machine are in the task's control group, and the machine dies
// with it. What the guest says is as little trusted as what comes from the network.
package vm

//go:generate ./build-init.sh

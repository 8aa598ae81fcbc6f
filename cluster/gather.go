package cluster

import "time"

const (
	// gatherFor is how long what is to be spread waits, after the site's start, for the workers that were there before: the first to come
	// back would get all of it. It is longer than the time between two tries of a worker to connect.
	gatherFor = 20 * time.Second
	// gatherLook is how often it looks whether they are all there.
	gatherLook = 500 * time.Millisecond
)

//go:build !linux

package processstats

func processFamilies() []family { return nil }

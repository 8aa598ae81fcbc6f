package fleet

// Records are how the keys of the records of children and of a parent begin. They are binary, and read with care of their own: nil.
func Records() map[string]func() any { return map[string]func() any{prefixChild: nil, prefixParent: nil} }

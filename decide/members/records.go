package members

// ChildRecords are how the keys of the records of children begin. They are binary, and read with care of their own: nil.
func ChildRecords() map[string]func() any { return map[string]func() any{prefixChild: nil} }

// ParentRecords are the same of a parent.
func ParentRecords() map[string]func() any { return map[string]func() any{prefixParent: nil} }

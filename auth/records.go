package auth

// How the keys of records begin, where nothing else is said.
const (
	AuthorityRecords = "auth/"
	peopleRecords    = "user/"
)

// Records are the kinds of records of an authority and of people, by how their keys begin, each with a new value of the type that it is
// read into; nil: none.
func Records() map[string]func() any {
	return map[string]func() any{
		AuthorityRecords + recCA:       func() any { return new(caRecord) },
		AuthorityRecords + recToken:    func() any { return new(JoinToken) },
		AuthorityRecords + recEnrolled: func() any { return new(Enrolled) },
		AuthorityRecords + recRevoked:  func() any { return new(Revoked) },
		peopleRecords + recUser:        func() any { return new(userRecord) },
		peopleRecords + recSession:     func() any { return new(session) },
		peopleRecords + recAccess:      func() any { return new(accessToken) },
		peopleRecords + recAudit:       func() any { return new(AuditRecord) },
		peopleRecords + recSigningKey:  nil,
	}
}

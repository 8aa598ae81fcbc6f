package cluster

// signersOf gives the keys that count for an organisation; nil: its images need no signature.
func (p *Admission) signersOf(org string) []string {
	keys, ok := p.Signers[org]
	if !ok {
		keys = p.Signers[anyOrg]
	}
	if len(keys) == 0 {
		return nil
	}
	return keys
}

package view

import (
	"time"
)

// SecretView is a secret as the API shows it: never what it holds.
type SecretView struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Org       string              `json:"org"`
	Version   int                 `json:"version" doc:"The version in use: the newest, unless somebody went back to an earlier one."`
	Files     []string            `json:"files" doc:"Names of its files."`
	Size      int                 `json:"size" doc:"Its bytes."`
	CreatedAt time.Time           `json:"createdAt"`
	UpdatedAt time.Time           `json:"updatedAt"`
	Author    string              `json:"author,omitempty" doc:"Who made it."`
	UsedBy    []string            `json:"usedBy" doc:"Services that name it, as application/service."`
	Versions  []SecretVersionView `json:"versions" doc:"The versions that are kept, the newest first."`
}

// SecretVersionView is a version of a secret as the API shows it.
type SecretVersionView struct {
	Version   int       `json:"version"`
	Files     []string  `json:"files"`
	Size      int       `json:"size"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author,omitempty"`
}

package view

import (
	"time"
)

// SecretView is a secret as the API shows it: never what it holds.
type SecretView struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Org       string              `json:"org"`
	Version   int                 `json:"version" doc:"Current version: the newest, unless somebody returned to an earlier one."`
	Files     []string            `json:"files" doc:"File names."`
	Size      int                 `json:"size" doc:"Size in bytes."`
	CreatedAt time.Time           `json:"createdAt"`
	UpdatedAt time.Time           `json:"updatedAt"`
	Author    string              `json:"author,omitempty" doc:"User who created it."`
	UsedBy    []string            `json:"usedBy" doc:"Services that use it, as application/service."`
	Versions  []SecretVersionView `json:"versions" doc:"Retained versions, newest first."`
}

// SecretVersionView is a version of a secret as the API shows it.
type SecretVersionView struct {
	Version   int       `json:"version"`
	Files     []string  `json:"files"`
	Size      int       `json:"size"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author,omitempty"`
}

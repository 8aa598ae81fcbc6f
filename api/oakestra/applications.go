package oakestra

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// id gives what Oakestra's clients call something: 24 hexadecimal digits as of a database of documents, which follow from its names alone.
func id(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:12])
}

func appID(a *view.AppView) string { return id("application", a.Org, a.Key.Namespace, a.Key.Name) }

func serviceID(a *view.AppView, service string) string {
	return id("service", a.Org, a.Key.Namespace, a.Key.Name, service)
}

func clusterID(name skerry.ClusterName) string {
	if name == "" {
		return ""
	}
	return id("cluster", string(name))
}

// objectID is an ID as the database of documents writes it.
type objectID struct {
	OID string `json:"$oid"`
}

// application is one as Oakestra shows it.
type application struct {
	Key         objectID `json:"_id"`
	ID          string   `json:"applicationID"`
	Name        string   `json:"application_name"`
	Namespace   string   `json:"application_namespace"`
	Description *string  `json:"application_desc"` // null: a list has none
	User        string   `json:"userId"`
	Services    []string `json:"microservices"` // IDs
	// Warnings are what of an SLA is not exactly what was asked for; only the answer to it has them.
	Warnings []string `json:"warnings,omitempty"`
}

func showApplication(a *view.AppView) application {
	out := application{Key: objectID{appID(a)}, ID: appID(a), Name: a.Key.Name, Namespace: a.Key.Namespace, User: a.Author,
		Services: []string{}}
	if a.Manifest != nil {
		out.Description = &a.Manifest.Metadata.Description
	}
	for _, s := range a.Services {
		out.Services = append(out.Services, serviceID(a, s.Name))
	}
	return out
}

func appPath(key skerry.AppKey) string {
	return "/v1/apps/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name)
}

// apps lists the applications that the user may see.
func (c *call) apps() ([]view.AppView, error) {
	list, err := send[api.List[view.AppView]](c, http.MethodGet, "/v1/apps", nil)
	return list.Items, err
}

// find gives the key of the application that the path names.
func (c *call) find() (skerry.AppKey, error) {
	list, err := c.apps()
	if err != nil {
		return skerry.AppKey{}, err
	}
	for i := range list {
		if appID(&list[i]) == c.r.PathValue("id") {
			return list[i].Key, nil
		}
	}
	return skerry.AppKey{}, skerry.Errorf(skerry.CodeNotFound, "there is no application %.64q", c.r.PathValue("id"))
}

// app gives an application with its manifest.
func (c *call) app(key skerry.AppKey) (view.AppView, error) {
	a, err := send[view.AppView](c, http.MethodGet, appPath(key), nil)
	if err == nil && a.Manifest == nil {
		err = skerry.Errorf(skerry.CodeUnavailable, "the manifest of application %s is not known now", key)
	}
	return a, err
}

func (c *call) listApplications() (any, error) {
	list, err := c.apps()
	out := make([]application, len(list))
	for i := range list {
		out[i] = showApplication(&list[i])
	}
	return out, err
}

func (c *call) getApplication() (any, error) {
	key, err := c.find()
	if err != nil {
		return nil, err
	}
	a, err := c.app(key)
	return showApplication(&a), err
}

func (c *call) deleteApplication() (any, error) {
	key, err := c.find()
	if err != nil {
		return nil, err
	}
	defer c.h.turns.take(key)()
	if _, err := send[apps.Deleted](c, http.MethodDelete, appPath(key), nil); err != nil {
		return nil, err
	}
	return message{"Application Deleted"}, nil
}

// message is how Oakestra says that something is done.
type message struct {
	Message string `json:"message"`
}

// createApplications stores the applications of an SLA, without an instance: those are started one by one. Nothing is stored if an
// application is not valid. The answer lists all applications of the user, those of the SLA under the names that it has for them.
func (c *call) createApplications() (any, error) {
	converted, err := c.sla()
	if err != nil {
		return nil, err
	}
	for i := range converted {
		if err := c.create(&converted[i]); err != nil {
			return nil, converted[i].explain(err)
		}
	}
	list, err := c.apps()
	out := make([]application, len(list))
	for i := range list {
		out[i] = showApplication(&list[i])
		for _, made := range converted {
			if made.app.Key() == list[i].Key {
				out[i].Name, out[i].Description, out[i].Warnings = made.name, &made.app.Metadata.Description, made.warnings
			}
		}
	}
	return out, err
}

// create stores an application that is not there yet.
func (c *call) create(made *converted) error {
	key := made.app.Key()
	defer c.h.turns.take(key)()
	if _, err := c.app(key); err == nil {
		return skerry.Errorf(skerry.CodeConflict, "an application with the same name and namespace exists already").
			WithHint("`skerry get apps -n %s` lists what is there", key.Namespace)
	} else if skerry.AsError(err).Code != skerry.CodeNotFound {
		return err
	}
	res, err := send[apps.Applied](c, http.MethodPost, "/v1/apps?register=true", made.app)
	made.warnings = append(made.warnings, res.Warnings...)
	return err
}

// change has a user's change made to the manifest of an application, unless somebody else changes it meanwhile.
func (c *call) change(key skerry.AppKey, edit func(*spec.Application) error) error {
	a, err := c.app(key)
	if err != nil {
		return err
	}
	if err := edit(a.Manifest); err != nil {
		return err
	}
	q := url.Values{"expectGeneration": {strconv.FormatUint(uint64(a.Gen), 10)}}
	if !a.Deployed {
		q.Set("register", "true")
	}
	_, err = send[apps.Applied](c, http.MethodPost, "/v1/apps?"+q.Encode(), a.Manifest)
	return err
}

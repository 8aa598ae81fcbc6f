// Package view owns what the API answers: the shapes in which roots and clusters show applications, services, workers, sites, volumes and
// plans. It holds no state and decides nothing. Roles, the API and its clients import it, and pure packages that fill in a part of an answer.
package view

// Package archtest holds the rules of the code base that a program can check: who may import whom, which packages are
// pure, that packages have comments and files a readable size. It has tests only; nothing imports it.
package archtest

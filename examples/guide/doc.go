// Package guide holds the code that README.md, docs/guide.md, docs/production.md
// and docs/testing.md show, so that it is compiled and tested. A test of the
// root package compares them.
package guide

// Package chitest tests httpcap behind chi, in a module of its own so that nobody else needs chi.
package chitest

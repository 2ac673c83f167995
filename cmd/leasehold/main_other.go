//go:build !unix

package main

func inner([]string) (code int, ok bool) { return 0, false }

func dieOf(int) {}

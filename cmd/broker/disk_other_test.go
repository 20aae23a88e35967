//go:build !linux

package main

func unsynced() { panic("not here") }

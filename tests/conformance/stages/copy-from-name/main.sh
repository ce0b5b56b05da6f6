#!/bin/sh
echo @VERSION@

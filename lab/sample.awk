# sample.awk: prints what each device of a lab uses, a line each per `pause` seconds, for ever. lab/run starts it in the switch's
# network namespace, where /proc/net/dev has a line per device. watched: lines "NAME MEMORY-DIR BLKIO-DIR V2-DIR"; "-": with v2
# everything is in V2-DIR.

function number(file,    line) { line = 0; getline line <file; close(file); return line + 0 }
function keyed(file, key,    line, word, value) {
    while ((getline line <file) > 0) if (split(line, word, " ") > 1 && word[1] == key) value = word[2]
    close(file)
    return value + 0
}
function read_bytes(i,    file, line, word, value) {
    file = memory[i] == "-" ? v2[i] "/io.stat" : blkio[i] "/blkio.throttle.io_service_bytes"
    while ((getline line <file) > 0) {
        split(line, word, " ")
        if (word[1] != disk) continue
        if (word[2] == "Read") value = word[3]
        else if (match(line, /rbytes=[0-9]+/)) value = substr(line, RSTART + 7, RLENGTH - 7)
    }
    close(file)
    return value + 0
}
function network(    line, word) {
    while ((getline line <"/proc/net/dev") > 0) {
        sub(/:/, " ", line)
        split(line, word, " ")
        received[word[1]] = word[10]; sent[word[1]] = word[2] # the switch receives what the device sends
    }
    close("/proc/net/dev")
}
function uptime(    line) { getline line <"/proc/uptime"; close("/proc/uptime"); return line + 0 }
function sample(i,    used, anon, file, kernel, n, cpu, io, passed) {
    n = name[i]
    if (memory[i] == "-") { used = number(v2[i] "/memory.current"); anon = keyed(v2[i] "/memory.stat", "anon"); file = keyed(v2[i] "/memory.stat", "file"); kernel = keyed(v2[i] "/memory.stat", "kernel") }
    else { used = number(memory[i] "/memory.usage_in_bytes"); anon = keyed(memory[i] "/memory.stat", "rss"); file = keyed(memory[i] "/memory.stat", "cache"); kernel = number(memory[i] "/memory.kmem.usage_in_bytes") }
    cpu = v2[i] == "" ? 0 : keyed(v2[i] "/cpu.stat", "usage_usec")
    io = read_bytes(i)
    passed = now - then
    if (then) printf "%.2f,%s,%.2f,%.2f,%.2f,%.2f,%.2f,%.1f,%.2f,%.2f\n", now - begun, n, used / 1048576, anon / 1048576, file / 1048576, kernel / 1048576,
        (cpu - cpu_then[i]) / 1e6 / passed, (io - io_then[i]) / 1e6 / passed, (sent[n] - sent_then[i]) * 8e-6 / passed, (received[n] - received_then[i]) * 8e-6 / passed
    cpu_then[i] = cpu; io_then[i] = io; sent_then[i] = sent[n]; received_then[i] = received[n]
}
BEGIN {
    n_watched = split(watched, line_of, "\n")
    for (i = 1; i <= n_watched; i++) {
        n_words = split(line_of[i], word, " ")
        name[i] = word[1]; memory[i] = word[2]
        if (word[2] == "-") v2[i] = word[n_words]
        else { blkio[i] = word[3]; v2[i] = word[4] }
    }
    print "s,device,memory_mib,anon_mib,file_mib,kernel_mib,cpu,disk_mb_s,sent_mbit_s,received_mbit_s"
    begun = uptime()
    for (;;) {
        now = uptime()
        network()
        for (i = 1; i <= n_watched; i++) sample(i)
        fflush()
        then = now
        system("sleep " pause)
    }
}

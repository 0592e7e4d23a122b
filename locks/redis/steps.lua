-- The modes; queue.lua comes before.

-- Gives the caller its place in the queue, or keeps it alive there. Returns in how many
-- ms it has to ask again.
local function queueUp(mine, at, before)
  if not ticket or ticket < mine.ticket then redis.call('HSET', S, 'ticket', mine.ticket) end
  redis.call('HSET', E, id, cjson.encode(mine))
  redis.call('ZADD', Q, 0, at)
  redis.call('ZADD', D, now + mine.ttl, at)
  local recheck = math.floor(mine.ttl / 3)
  local soon = (changed or before == 1) and wake()
  if soon then recheck = math.min(recheck, soon) end
  if mine.join == 0 then recheck = math.min(recheck, 1000) end
  if before == 0 then
    recheck = math.min(recheck, firstEnd() or recheck)
    if quiet > now then recheck = math.min(recheck, msUntil(quiet) + 1) end
  else -- all who are next may have died, with the holder
    local over = 0
    for _, near in ipairs(redis.call('ZRANGE', Q, 0, math.min(before, 3) - 1)) do
      over = math.max(over, tonumber(redis.call('ZSCORE', D, near)) or 0)
    end
    if over > 0 then recheck = math.min(recheck, msUntil(over) + 1) end
  end
  return math.max(recheck, 1)
end

local function join()
  local mine = cjson.decode(text)
  local old, oldText = record(id)
  local gone, evictor = redis.call('ZSCORE', G, id), redis.call('HGET', E, id .. '!')
  if gone and evictor then return {verdict = 'evicted', by = evictor} end
  if gone and not nowait and not maxQueue and within == '' then return {verdict = 'gone'} end
  if oldText or mine.ticket ~= digits(0) then bypassMemoryLimit() end
  checkEpoch()
  dropExpired(now)
  if not gone and oldText and redis.call('ZSCORE', H, id) and old.slots ~= '' then
    -- An evicted holder does not start its command. It keeps the slot until it leaves:
    -- this call may be late, and the command may be running.
    if evictor then return {verdict = 'evicted', by = evictor} end
    lease(old, id, mine.ttl)
    keep(mine.ttl, holdEnd(old))
    return {verdict = 'granted', epoch = epoch, record = old, noRunID = noRunID}
  end
  -- A caller that joins has not begun: a grant without slots is made again.
  if not gone then redis.call('ZREM', H, id) end
  if oldText and old.ticket then mine.ticket, mine.since = old.ticket, old.since end
  local new = mine.ticket == digits(0)
  if new then mine.ticket, mine.since = after(ticket), digits(micros) end
  local at = place(mine, id)
  local before = redis.call('ZLEXCOUNT', Q, '-', '(' .. at)
  local sum, limit, taken = holders()
  local function fitsNow() return not gone and before == 0 and quiet <= now and fits(mine, sum, limit) end
  -- A run inside a holder of the same name would wait for itself.
  local inside
  for run in within:gmatch('%x+') do
    if redis.call('ZSCORE', H, run) and alive(record(run), run) then inside = run end
  end
  local full, replaced = false, {}
  if new and not inside and not nowait and (maxQueue or mine.replace ~= '') and not fitsNow() then
    local ahead = mine.replace ~= '' and rivals(at) or {}
    if maxQueue and redis.call('ZCARD', Q) - #ahead >= maxQueue then
      full = true
    elseif not gone and mine.replace ~= '' then
      before, changed = before - #ahead, true
      replaced = replace(mine, ahead)
      sum, limit, taken = holders()
    end
  end
  local answer = {epoch = epoch, record = mine, noRunID = noRunID, entries = listed(replaced)}
  if not full and fitsNow() then
    grant(mine, id, not new and at, taken, 0)
    wake()
    answer.verdict = 'granted'
    return answer
  end
  local quarantined = quiet > now and fits(mine, sum, limit) and msUntil(quiet) or 0
  if inside or nowait or full then
    if gone or (full and maxQueue > 0) then quarantined = 0 end
    if quarantined == 0 then removeEntry(mine, id) end -- otherwise it asks again
    wake()
    return {verdict = inside and 'nested' or 'busy', inside = inside, full = full, quarantine = quarantined,
      waiters = redis.call('ZCARD', Q), entries = listed(holding())}
  end
  if gone then return {verdict = 'gone'} end
  answer.verdict, answer.place, answer.quarantine = 'waiting', before + 1, quarantined
  answer.recheck = queueUp(mine, at, before)
  keep(mine.ttl)
  return answer
end

-- Prolongs a lease, or puts back the holder that the store has forgotten.
local function prolongLease()
  local gone, holds = redis.call('ZSCORE', G, id), redis.call('ZSCORE', H, id)
  if gone or (not holds and text == '') then return {verdict = 'lost'} end
  checkEpoch()
  local mine = record(id)
  local evictor = holds and redis.call('HGET', E, id .. '!')
  if evictor then return {verdict = 'evicted', by = evictor} end
  if holds and not alive(mine, id) then return {verdict = 'lost'} end
  if text ~= '' and (not holds or mine.ttl == 0) then
    mine = cjson.decode(text)
    if not holds then
      local sum, limit, taken = holders()
      if epoch == known or not fits(mine, sum, limit) or overlap(mine.slots, taken) then return {verdict = 'lost'} end
      dequeue(place(mine, id)) -- old data may know it as a waiter
      if not fence or fence < mine.fence then
        fence = mine.fence
        redis.call('HSET', S, 'fence', fence)
      end
    end
    redis.call('HSET', E, id, text)
  end
  local ttl = mine.ttl > 0 and mine.ttl or 1000
  lease(mine, id, ttl)
  keep(ttl, holdEnd(mine))
  return {verdict = 'held', epoch = epoch, record = mine.ttl > 0 and mine or nil, name = name}
end

local function renew()
  bypassMemoryLimit()
  dropExpired(now)
  local answer = prolongLease()
  if changed then wake() end
  return answer
end

local function release()
  bypassMemoryLimit()
  local over = tonumber(redis.call('ZSCORE', H, id) or nil)
  local mine, oldText = record(id)
  if not oldText and text ~= '' then mine = cjson.decode(text) end
  local existed = over and over > now or oldText and not over or false -- an expired one did not
  -- Was it taken out, or is this another server now? The epoch of the answer tells.
  if not existed and epoch then checkEpoch() end
  if mode == 'release' and oldText and holdEnd(mine) > now and over and not redis.call('HGET', E, id .. '!') then
    -- The slot stays taken for the rest of the hold.
    existed = existed and alive(mine, id)
    redis.call('ZADD', H, holdEnd(mine), id)
    redis.call('HDEL', E, id .. '@')
    addTombstone(id)
  else
    removeEntry(mine, id)
  end
  dropExpired(now)
  wake()
  return {verdict = 'released', existed = existed, epoch = epoch or ''}
end

local function evictEntry()
  bypassMemoryLimit()
  dropExpired(now)
  local r = record(id)
  local there = redis.call('ZSCORE', H, id) or (r.order and redis.call('ZSCORE', Q, place(r, id)))
  if there then evict(id, r, by) end
  if there or changed then wake() end
  return {verdict = there and 'marked' or 'lost'}
end

-- It changes nothing.
local function list()
  local entries = holding()
  for _, waiter in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
    local moment = redis.call('ZSCORE', D, waiter) or now + 1
    local r, text = record(waiter:sub(33))
    if text and tonumber(moment) > now then
      entries[#entries + 1] = entryOf('waiting', waiter:sub(33), moment, r)
    end
  end
  return {verdict = 'list', name = name, entries = listed(entries)}
end

-- For names that nobody uses: each other step drops expired entries by itself. A name of
-- which no key is left goes from the index.
local function sweep()
  local removed = dropExpired(now - age)
  local unused = INDEX ~= nil
  for _, key in ipairs({S, H, Q, D, E}) do unused = unused and redis.call('PTTL', key) == -2 end
  if unused then removed = removed + redis.call('ZREM', INDEX, name) end
  return {verdict = 'swept', removed = removed}
end

local modes = {
  join = join, renew = renew, release = release, leave = release, evict = evictEntry, list = list, sweep = sweep,
}
return cjson.encode(modes[mode]())
